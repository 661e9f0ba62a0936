// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The way of a request: the routes and their checks.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};

use super::servers;
use super::store::{Order, Store};
use crate::faults::{Action, Door, Faults, Listed, Recorder, Service, bad};
use crate::restify::{self, Params};

/// A refusal: status, code, message.
type Refusal = (u16, &'static str, String);
/// Status and body.
type Done = Result<(u16, Option<Value>), Refusal>;

impl Service for Store {
    fn parts(&self) -> (&Faults, &Recorder) {
        (self.faults(), self.log())
    }

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds nodes: an array of servers, each with its sysinfo"),
        ("GET", "dump", "the nodes and the tickets"),
        ("POST", "reset", "drops nodes, tickets and tasks; fault rules and requests stay"),
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
                let servers: Vec<Value> = self.servers().values().map(|it| json!(it)).collect();
                json!({ "servers": servers, "tickets": self.all_tickets() })
            }
            (&Method::POST, "reset") => {
                self.reset();
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

    fn canned(
        &self,
        request: &Request<Bytes>,
        status: u16,
        body: Option<&Value>,
    ) -> Response<Bytes> {
        restify::routed(request, "CNAPI", self.now_ms(), (status, body))
    }

    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        actions: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        Box::pin(async move {
            let (status, body) = match self.operate(request, actions).await {
                Ok(done) => done,
                Err((status, code, message)) => {
                    (status, Some(json!({ "code": code, "message": message })))
                }
            };
            Some(self.canned(request, status, body.as_ref()))
        })
    }
}

impl Store {
    async fn operate(&self, request: &Request<Bytes>, actions: &[Action]) -> Done {
        let path = request.uri().path();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let params = restify::from_query(request.uri().query().unwrap_or_default());
        let body = body(request)?;
        match (request.method().as_str(), parts.as_slice()) {
            ("GET", ["ping"]) => {
                let services = json!({ "workflow": "online", "moray": "online" });
                Ok((200, Some(json!({ "ready": true, "services": services }))))
            }
            ("GET", ["servers"]) => {
                let listed = servers::listed(self.servers().values(), &params);
                Ok((200, Some(json!(listed.map_err(invalid)?))))
            }
            ("GET", ["servers", server]) => match self.servers().get(*server) {
                Some(server) => Ok((200, Some(json!(server)))),
                None => Err(no_server(server)),
            },
            ("POST", ["servers", server]) => match self.servers().get_mut(*server) {
                Some(server) => {
                    server.extend(body);
                    Ok((204, None))
                }
                None => Err(no_server(server)),
            },
            ("POST", ["allocate"]) => match servers::allocate(self.servers().values(), &body) {
                Some(server) => {
                    let steps = json!([]);
                    Ok((200, Some(json!({ "server": server, "imgapiPeers": [], "steps": steps }))))
                }
                None => Err((409, "InvalidArgument", "No compute resources available".to_owned())),
            },
            ("POST", ["servers", server, "tickets"]) => {
                let added = self.tickets(|tickets, now| tickets.add(server, &body, now));
                Ok((202, Some(added.map_err(invalid)?)))
            }
            ("GET", ["servers", server, "tickets"]) => {
                Ok((200, Some(json!(self.tickets(|tickets, now| tickets.list(Some(server), now))))))
            }
            ("GET", ["tickets", ticket]) => {
                let found = self.tickets(|tickets, now| tickets.get(ticket, now));
                Ok((200, Some(found.ok_or_else(no_ticket)?)))
            }
            ("GET", ["tickets", ticket, "wait"]) => match self.turn(ticket).await {
                true => Ok((204, None)),
                false => Err(no_ticket()),
            },
            ("PUT", ["tickets", ticket, "release"]) => match self.set_ticket(ticket, "finished") {
                true => Ok((204, None)),
                false => Err(no_ticket()),
            },
            ("GET", ["tasks", id]) => told(self.task(id)),
            ("GET", ["tasks", id, "wait"]) => told(self.ended(id).await),
            (method, ["servers", server, "vms", rest @ ..]) => {
                self.of_vm(method, server, rest, body, params, actions).await
            }
            _ => Err((404, "ResourceNotFound", format!("{path} does not exist"))),
        }
    }

    /// A VM of a node: read at once, or the work of a task.
    async fn of_vm(
        &self,
        method: &str,
        server: &str,
        rest: &[&str],
        body: Params,
        params: Params,
        actions: &[Action],
    ) -> Done {
        if !self.servers().contains_key(server) {
            return Err(no_server(server));
        }
        let (verb, vm) = match (method, rest) {
            ("POST", []) => {
                ("create", body.get("uuid").and_then(Value::as_str).unwrap_or_default())
            }
            ("DELETE", [vm]) => ("delete", *vm),
            ("GET", [vm]) => ("load", *vm),
            ("POST", [vm, verb]) => (*verb, *vm),
            _ => return Err((405, "MethodNotAllowedError", format!("{method} is not allowed"))),
        };
        let (vm_uuid, verb, server_uuid) = (vm.to_owned(), verb.to_owned(), server.to_owned());
        let order = Order { server_uuid, verb, vm_uuid, body, params };
        if order.verb == "load" {
            let missing = format!("VM {} not found", order.vm_uuid);
            let loaded = match self.hands() {
                Some(hands) => hands(order).await.ok(),
                None => None,
            };
            let vm = loaded.ok_or((404, "ResourceNotFound", missing))?;
            return Ok((200, Some(vm)));
        }
        let id = uuid::Uuid::new_v4().to_string();
        self.set_task(&id, fields(&json!({ "status": "active", "history": [] })));
        let failure = actions.iter().find_map(|action| match action {
            Action::FailTask { message } => Some(message.clone()),
            _ => None,
        });
        if !actions.iter().any(|action| matches!(action, Action::HangTask)) {
            let (store, task) = (self.clone(), id.clone());
            tokio::spawn(async move { store.carry_out(&task, order, failure).await });
        }
        Ok((202, Some(json!({ "id": id }))))
    }

    async fn carry_out(&self, task: &str, order: Order, failure: Option<String>) {
        let done = match (failure, self.hands()) {
            (Some(message), _) => Err(message),
            (None, Some(hands)) => hands(order).await,
            (None, None) => Ok(json!({ "log": [] })),
        };
        let end = match done {
            Ok(event) => {
                json!({ "status": "complete", "history": [{ "name": "finish", "event": event }] })
            }
            Err(message) => {
                let event = json!({ "error": { "message": message } });
                json!({ "status": "failure", "history": [{ "name": "error", "event": event }] })
            }
        };
        self.set_task(task, fields(&end));
    }
}

/// The body as an object; nothing sent is an empty one.
fn body(request: &Request<Bytes>) -> Result<Params, Refusal> {
    if request.body().is_empty() {
        return Ok(Params::new());
    }
    serde_json::from_slice(request.body())
        .map_err(|why| (400, "InvalidContent", format!("Invalid JSON: {why}")))
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn told(task: Option<Map<String, Value>>) -> Done {
    let task = task.ok_or((404, "ResourceNotFound", "task not found".to_owned()))?;
    let status = task.get("http").and_then(Value::as_u64);
    let status = status.and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    Ok((status, Some(Value::Object(task))))
}

fn invalid(field: &'static str) -> Refusal {
    (409, "ValidationFailed", format!("Validation failed: {field}"))
}

fn no_server(uuid: &str) -> Refusal {
    (404, "ResourceNotFound", format!("Server {uuid} not found"))
}

fn no_ticket() -> Refusal {
    (404, "ResourceNotFound", "ticket not found".to_owned())
}
