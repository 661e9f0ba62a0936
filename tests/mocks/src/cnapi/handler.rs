// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The way of a request: side doors, what comes before the routes, and the routes.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, header};
use serde_json::{Map, Value, json};

use super::choice::{World, allocate};
use super::node::{Node, Parts, default_record, object};
use super::orders::{Done, is_verb, posting};
use super::refusal::{Kind, Params, Refusal, closed, is_uuid, require, word};
use super::store::{DEFAULT, Order, Store};
use super::{body, servers, tickets};
use crate::faults::{Action, Canned, Door, Faults, Listed, Recorder, Service, bad};
use crate::restify::{self, BadBody, Endpoint, Endpoints, Found, Slashes};

/// Between the read and the write of an update.
const UPDATE: Duration = Duration::from_millis(30);
/// A status is written so long after its answer.
const WRITTEN_MS: i64 = 150;

impl Service for Store {
    fn parts(&self) -> (&Faults, &Recorder) {
        (self.faults(), self.log())
    }

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds nodes: an array of servers, each with its sysinfo"),
        ("GET", "dump", "the nodes, the tickets, and how often its process has ended on a request"),
        ("POST", "reset", "drops nodes, tickets and tasks; fault rules and requests stay"),
        ("POST", "restart", "starts it again after its process has ended on a request"),
        ("DELETE", "tickets", "drops the tickets"),
        ("POST", "tickets", "sets the status of a ticket: {uuid, status}"),
        ("POST", "tasks", "sets the status and the history of a task: {id, status, history}"),
    ];

    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        let object = || serde_json::from_slice::<Map<String, Value>>(request.body()).map_err(bad);
        let text = |of: &Map<String, Value>, name: &str| {
            let text = of.get(name).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| (400, format!("{name} is missing")))
        };
        Ok(Some(match (request.method(), what) {
            (&Method::POST, "seed") => {
                let servers: Vec<Map<String, Value>> =
                    serde_json::from_slice(request.body()).map_err(bad)?;
                servers.into_iter().for_each(|server| self.put_server(server));
                json!({})
            }
            (&Method::GET, "dump") => {
                let now = self.now_ms();
                let servers: Vec<Params> =
                    self.nodes().values().map(|node| node.shown(Parts::ALL, now)).collect();
                let (tickets, deaths) = (self.all_tickets(), self.deaths());
                json!({ "servers": servers, "tickets": tickets, "deaths": deaths })
            }
            (&Method::POST, "reset") => {
                self.reset();
                json!({})
            }
            (&Method::POST, "restart") => {
                self.restart();
                json!({})
            }
            (&Method::DELETE, "tickets") => {
                self.drop_tickets();
                json!({})
            }
            (&Method::POST, "tickets") => {
                let given = object()?;
                let uuid = text(&given, "uuid")?;
                if !self.set_ticket(&uuid, &text(&given, "status")?) {
                    return Err((404, format!("there is no ticket {uuid}")));
                }
                json!({})
            }
            (&Method::POST, "tasks") => {
                let given = object()?;
                self.set_task(&text(&given, "id")?, given.clone());
                json!({})
            }
            _ => return Ok(None),
        }))
    }

    fn canned(&self, request: &Request<Bytes>, answer: Canned<'_>) -> Response<Bytes> {
        restify::routed(request, "CNAPI", self.now_ms(), answer)
    }

    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        actions: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        Box::pin(async move {
            if self.is_down() {
                return None;
            }
            if let Some(refused) = refused_by_the_router(request) {
                return Some(refused);
            }
            let done = tokio::select! {
                biased;
                done = self.operate(request, actions) => done,
                () = self.end() => return None,
            };
            let (status, body) = match done {
                Ok(done) => done,
                Err(refusal) => {
                    if matches!(refusal, Refusal::Dies | Refusal::DiesAfter(_)) {
                        self.die();
                    }
                    let (status, body) = refusal.answer()?;
                    (status, Some(body))
                }
            };
            Some(self.canned(request, (status, body.as_ref())))
        })
    }
}

/// The parts of a path; a slash at its end leaves an empty one.
fn parts(request: &Request<Bytes>) -> Vec<&str> {
    request.uri().path().trim_start_matches('/').split('/').collect()
}

const ENDPOINTS: Endpoints<()> = Endpoints {
    all: &[
        Endpoint::new("/ping", "GET", ()),
        Endpoint::new("/servers", "GET", ()),
        Endpoint::new("/servers/{server?}", "GET, POST, DELETE", ()),
        Endpoint::new("/servers/{server}/sysinfo", "POST", ()),
        Endpoint::new("/servers/{server}/events/status", "POST", ()),
        Endpoint::new("/servers/{server}/events/heartbeat", "POST", ()),
        Endpoint::new("/servers/{server}/tickets", "GET, POST, DELETE", ()),
        Endpoint::new("/servers/{server}/nop", "POST", ()),
        Endpoint::new("/servers/{server}/vms", "POST, GET", ()),
        Endpoint::new("/servers/{server}/vms/{vm}", "GET, DELETE", ()),
        Endpoint::new("/servers/{server}/vms/{vm}/snapshots", "PUT", ()),
        Endpoint::new("/servers/{server}/vms/{vm}/snapshots/{snapshot}", "DELETE", ()),
        Endpoint::new("/servers/{server}/vms/{vm}/snapshots/{snapshot}/rollback", "PUT", ()),
        Endpoint::new("/servers/{server}/vms/{vm}/{verb}", "POST", ()),
        Endpoint::new("/allocate", "POST", ()),
        Endpoint::new("/tickets/{ticket}", "GET, DELETE", ()),
        Endpoint::new("/tickets/{ticket?}/wait", "GET", ()),
        Endpoint::new("/tickets/{ticket}/release", "PUT", ()),
        Endpoint::new("/tasks/{task?}", "GET", ()),
        Endpoint::new("/tasks/{task?}/wait", "GET", ()),
    ],
    slashes: Slashes::Kept,
};

/// What is refused before a route is looked at.
fn refused_by_the_router(request: &Request<Bytes>) -> Option<Response<Bytes>> {
    let (method, path) = (request.method(), request.uri().path());
    let header = |name: header::HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok())
    };
    let is_known = |found: &Found<()>| found.part("verb").is_empty() || is_verb(found.part("verb"));
    let Some(found) = ENDPOINTS.find(path).filter(is_known) else {
        return Some(restify::no_route(method, path));
    };
    let version = restify::asked_version(request.headers());
    if !found.endpoint.allows(method) || version.is_some_and(|it| it != "*") {
        return Some(restify::not_allowed(method, found.endpoint.methods));
    }
    let knows = |kind: &str| {
        let kinds = ["*/*", "application/", "text/plain"];
        kinds.iter().any(|known| kind.trim().starts_with(known))
    };
    let is_refused = header(header::ACCEPT).is_some_and(|kinds| !kinds.split(',').any(knows));
    is_refused.then(|| restify::refusal(method, 406, "NotAcceptableError", restify::SERVES))
}

impl Store {
    async fn operate(&self, request: &Request<Bytes>, actions: &[Action]) -> Done {
        let parts = parts(request);
        let method = request.method().as_str();
        let query = restify::from_query(request.uri().query().unwrap_or_default());
        let body = match read(request) {
            Ok(body) => body,
            Err(BadBody::Syntax(why)) => {
                return Err(Refusal::Coded(400, "InvalidContent", format!("Invalid JSON: {why}")));
            }
            Err(BadBody::List | BadBody::NotAnObject) if parts[0] == "servers" => {
                return Err(Refusal::argument("Invalid server_uuid"));
            }
            Err(BadBody::List | BadBody::NotAnObject) => Params::new(),
        };
        let all = || -> Params { query.clone().into_iter().chain(body.clone()).collect() };
        if let ["servers", server, ..] = parts.as_slice()
            && *server != DEFAULT
            && !is_uuid(server)
        {
            // A node that does not know itself ends the process.
            let is_sysinfo = parts.ends_with(&["sysinfo"]);
            let refusal = Refusal::argument("Invalid server_uuid");
            return Err(if is_sysinfo { Refusal::Dies } else { refusal });
        }
        match (method, parts.as_slice()) {
            ("GET", ["ping"]) => {
                let services =
                    json!({ "workflow": "online", "moray": "online", "amqp": "offline" });
                Ok((200, Some(json!({ "ready": false, "services": services }))))
            }
            ("GET", ["servers"]) => {
                let listed = servers::listed(self.nodes().values(), &query, self.now_ms())?;
                Ok((200, Some(json!(listed))))
            }
            ("GET", ["servers", server]) => {
                closed(&query, &[])?;
                if *server == DEFAULT {
                    return Ok((200, Some(default_record())));
                }
                let (nodes, now) = (self.nodes(), self.now_ms());
                let node = nodes.get(*server).ok_or_else(|| Refusal::no_server(server))?;
                Ok((200, Some(json!(node.shown(Parts::ALL, now)))))
            }
            ("POST", ["servers", server]) => self.update(server, &all(), actions).await,
            ("DELETE", ["servers", server]) => match self.nodes().remove(*server) {
                Some(_) => Ok((200, None)),
                None => Err(Refusal::no_server(server)),
            },
            ("POST", ["servers", server, "sysinfo"]) => self.sysinfo(server, &all()),
            ("POST", ["servers", server, "events", event]) => self.event(server, event, &all()),
            ("POST", ["allocate"]) => self.allocate(&all()),
            ("POST", ["servers", server, "tickets"]) => {
                self.require(server)?;
                let added = self.tickets(|tickets, now| tickets.add(server, &all(), now))?;
                Ok((202, Some(added)))
            }
            ("GET", ["servers", server, "tickets"]) => {
                self.require(server)?;
                let page = self.tickets(|tickets, now| tickets.list(server, &query, now))?;
                Ok((200, Some(json!(page))))
            }
            ("DELETE", ["servers", server, "tickets"]) => {
                self.require(server)?;
                self.tickets(|tickets, _| tickets.delete_all(server, &query))?;
                Ok((204, None))
            }
            ("GET", ["tickets", ticket]) => {
                let found = self.tickets(|tickets, now| tickets.get(ticket, now))?;
                Ok((200, Some(found)))
            }
            ("GET", ["tickets", ticket, "wait"]) => {
                tickets::known(ticket)?;
                self.turn(ticket).await?;
                Ok((204, None))
            }
            ("PUT", ["tickets", ticket, "release"]) => {
                self.tickets(|tickets, now| tickets.release(ticket, now))?;
                Ok((204, None))
            }
            ("DELETE", ["tickets", ticket]) => {
                self.tickets(|tickets, now| tickets.delete(ticket, now))?;
                Ok((204, None))
            }
            ("GET", ["tasks", id]) => self.told(id),
            ("GET", ["tasks", id, "wait"]) => self.told_once_ended(id, &query).await,
            ("GET", ["servers", server, "vms"]) => {
                self.require(server)?;
                let mut vms = self.vms().unwrap_or_default();
                vms.retain(|vm| word(vm, "server_uuid") == *server);
                vms.iter_mut().for_each(|vm| drop(vm.shift_remove("server_uuid")));
                Ok((200, Some(json!(vms))))
            }
            (method, ["servers", server, rest @ ..]) => {
                self.order(method, server, rest, (body, query), actions).await
            }
            (_, _) => Err(Refusal::not_found(format!("/{} does not exist", parts.join("/")))),
        }
    }

    /// A read and a conditional write, which another write in between makes fail; so often it is tried again.
    async fn update(&self, server: &str, changes: &Params, actions: &[Action]) -> Done {
        servers::check_update(changes)?;
        if server == DEFAULT {
            return Err(Refusal::Dies);
        }
        let retries = changes.get("etag_retries").and_then(Value::as_u64).unwrap_or(0);
        let read = || -> Result<(u64, bool), Refusal> {
            let now = self.now_ms();
            let mut nodes = self.nodes();
            let node = nodes.get_mut(server).ok_or_else(|| Refusal::no_server(server))?;
            node.settle(now);
            Ok((node.etag, node.is_set_up()))
        };
        let (mut etag, is_set_up) = read()?;
        if is_set_up && changes.contains_key("overprovision_ratios") {
            let verb = "overprovision".to_owned();
            let order = Order {
                server_uuid: server.to_owned(),
                verb,
                vm_uuid: String::new(),
                body: changes.clone(),
                params: Params::new(),
            };
            self.ask(order).await.map_err(|error| Refusal::internal(posting(&error)))?;
        }
        let mut is_changed = actions.iter().any(|action| matches!(action, Action::ChangeRow));
        for attempt in 0..=retries {
            tokio::time::sleep(UPDATE).await;
            let now = self.now_ms();
            let mut nodes = self.nodes();
            let node = nodes.get_mut(server).ok_or_else(|| Refusal::no_server(server))?;
            node.settle(now);
            if std::mem::take(&mut is_changed) {
                node.etag += 1;
            }
            if node.etag == etag {
                servers::update(node, changes);
                return Ok((204, None));
            }
            if attempt == retries {
                let (wanted, is) = (format!("{etag:X}"), format!("{:X}", node.etag));
                return Err(Refusal::storage(&format!(
                    "cnapi_servers::{server} was expected to have etag \"{wanted}\" but had etag \"{is}\""
                )));
            }
            etag = node.etag;
        }
        Ok((204, None))
    }

    fn sysinfo(&self, server: &str, told: &Params) -> Done {
        require(told, &[("sysinfo", Kind::Object, true)])?;
        closed(told, &["sysinfo"])?;
        let sysinfo = told.get("sysinfo").map(object).unwrap_or_default();
        if word(&sysinfo, "UUID") != server {
            return Err(Refusal::Dies);
        }
        let now = self.now_ms();
        let mut nodes = self.nodes();
        let node = nodes.entry(server.to_owned()).or_insert_with(|| Node::new(server));
        node.tell(&sysinfo, now);
        Ok((200, None))
    }

    fn event(&self, server: &str, event: &str, told: &Params) -> Done {
        let now = self.now_ms();
        match self.nodes().get_mut(server) {
            Some(node) if event == "heartbeat" => node.heartbeat = Some(now),
            Some(node) => {
                node.report(told);
                if event == "status" {
                    node.settle(now);
                    node.unwritten.push(now + WRITTEN_MS);
                }
            }
            None if event == "heartbeat" => return Ok((204, None)),
            None => return Err(Refusal::no_server(server)),
        }
        Ok((204, None))
    }

    fn allocate(&self, order: &Params) -> Done {
        body::check(order)?;
        let (vms, now_ms) = (self.vms(), self.now_ms());
        let nodes = self.nodes();
        let tickets = nodes
            .keys()
            .map(|uuid| (uuid.clone(), self.tickets(|tickets, now| tickets.provisions(uuid, now))));
        let tickets = tickets.collect();
        let world = World { nodes: nodes.values().collect(), vms, tickets, now_ms };
        Ok((200, Some(allocate(order, &world)?)))
    }
}

/// The parameters of the body; one of an unknown kind has none.
fn read(request: &Request<Bytes>) -> Result<Params, BadBody> {
    let mut body = Params::new();
    restify::merge_body(&mut body, request.headers(), request.body(), false)?;
    Ok(body)
}
