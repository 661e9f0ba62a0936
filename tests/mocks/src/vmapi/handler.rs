// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The way of a request: the routes and their checks.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::errors::{ApiError, missing};
use super::list;
use super::record::{Record, text, with_fields};
use super::store::{Peers, Store, find};
use super::vm::check_uuids;
use crate::faults::{Action, Canned, Door, Faults, Listed, Recorder, Service, Takeover, bad};
use crate::restify::{self, BadBody, Endpoint, Endpoints, Found, Params, Slashes, falsy};

const VERSION: [u32; 3] = [9, 16, 0];
/// The changefeed's, which its clients ask for.
const FEED_VERSION: [u32; 3] = [1, 0, 0];
/// What an `Accept` header may ask for; the answer is JSON in any case.
const SERVED: [&str; 6] = [
    "application/json",
    "text/plain",
    "application/octet-stream",
    "application/x-json-stream",
    "*/*",
    "application/*",
];

/// What a path is about.
#[derive(Clone, Copy, PartialEq)]
enum Route {
    Ping,
    Statuses,
    Changefeeds,
    FeedStats,
    Vms,
    Vm,
    /// One of a VM's maps, or its roles; and a name in it.
    OfVm,
    Migrations,
    Migration,
    Progress,
    StoreMigration,
    Move,
    Jobs,
    Job,
}

const ENDPOINTS: Endpoints<Route> = Endpoints {
    all: &[
        Endpoint::new("/ping", "GET, HEAD", Route::Ping),
        Endpoint::new("/statuses", "GET, HEAD", Route::Statuses),
        Endpoint::new("/changefeeds", "GET, HEAD", Route::Changefeeds),
        Endpoint::new("/changefeeds/stats", "GET, HEAD", Route::FeedStats),
        Endpoint::new("/vms", "GET, HEAD, POST, PUT", Route::Vms),
        Endpoint::new("/vms/{uuid?}", "GET, HEAD, POST, PUT, DELETE", Route::Vm),
        Endpoint::new("/vms/{uuid}/{what?}", "GET, POST, PUT, DELETE", Route::OfVm),
        Endpoint::new("/vms/{uuid}/{what}/{name}", "GET, DELETE", Route::OfVm),
        Endpoint::new("/migrations", "GET", Route::Migrations),
        Endpoint::new("/migrations/{uuid?}", "GET", Route::Migration),
        Endpoint::new("/migrations/{uuid}/progress", "POST", Route::Progress),
        Endpoint::new("/migrations/{uuid}/store", "POST", Route::StoreMigration),
        Endpoint::new("/migrations/{uuid}/updateVmServerUuid", "POST", Route::Move),
        Endpoint::new("/jobs", "GET", Route::Jobs),
        Endpoint::new("/jobs/{uuid}", "GET", Route::Job),
    ],
    slashes: Slashes::Dropped,
};

/// A success.
pub(super) enum Done {
    Json(Value),
    /// A page, and how many records match.
    Page(usize, Value),
    /// 202: this VM, and the job that works on it.
    Job(String, String),
    Empty,
}

impl Service for Store {
    fn parts(&self) -> (&Faults, &Recorder) {
        (self.faults(), self.log())
    }

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds records: an array of VMs"),
        ("GET", "dump", "every record"),
        ("POST", "reset", "drops all records; fault rules and requests stay"),
        ("GET", "published", "what was written, as the changefeed publishes it"),
        ("DELETE", "changefeed", "cuts the connections of the changefeed's listeners"),
    ];

    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        Ok(Some(match (request.method(), what) {
            (&Method::POST, "seed") => {
                let vms: Vec<Map<String, Value>> =
                    serde_json::from_slice(request.body()).map_err(bad)?;
                vms.into_iter().for_each(|vm| self.put(vm));
                json!({})
            }
            (&Method::GET, "dump") => json!({ "vms": self.all() }),
            (&Method::POST, "reset") => {
                self.reset();
                json!({})
            }
            (&Method::GET, "published") => json!(self.published()),
            (&Method::DELETE, "changefeed") => {
                self.cut_changefeed();
                json!({})
            }
            _ => return Ok(None),
        }))
    }

    fn canned(&self, request: &Request<Bytes>, answer: Canned<'_>) -> Response<Bytes> {
        restify::routed(request, "VMAPI/9.16.0", self.now_ms(), answer)
    }

    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        actions: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        Box::pin(async move {
            for action in actions {
                if let Action::DelayCommit { ms } = action {
                    tokio::time::sleep(Duration::from_millis(*ms)).await;
                }
            }
            match websocket_key(request) {
                Some(key) => Some(self.listen(&key)),
                None => self.respond(request, actions),
            }
        })
    }
}

/// The key of a request that asks for the changefeed itself.
fn websocket_key(request: &Request<Bytes>) -> Option<String> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_feed = request.method() == Method::GET && request.uri().path() == "/changefeeds";
    let asks = header(header::UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
    header(header::SEC_WEBSOCKET_KEY).filter(|_| is_feed && asks).map(str::to_owned)
}

impl Store {
    /// 101: from now on the connection is a listener's.
    fn listen(&self, key: &str) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = derive_accept_key(key.as_bytes()).parse() {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        let feed = self.feed().clone();
        let serve =
            move |io| -> BoxFuture<'static, ()> { Box::pin(feed.clone().serve(resource(), io)) };
        response.extensions_mut().insert(Takeover::new(serve));
        response
    }

    /// Finds the route and runs it; nothing if the process died of it.
    fn respond(&self, request: &Request<Bytes>, actions: &[Action]) -> Option<Response<Bytes>> {
        let (method, path) = (request.method(), request.uri().path());
        let Some(found) = ENDPOINTS.find(path) else {
            return Some(restify::no_route(method, path));
        };
        if !found.endpoint.allows(method) {
            return Some(restify::not_allowed(method, found.endpoint.methods));
        }
        if let Some(range) = restify::asked_version(request.headers())
            && !restify::version_fits(range, version(found.endpoint.route))
        {
            return Some(restify::wrong_version(method, path, range));
        }
        let done = check_accept(request).and_then(|()| self.operate(request, &found, actions));
        let (status, body, count) = match done {
            Ok(Done::Json(body)) => (200, Some(body), None),
            Ok(Done::Page(count, body)) => (200, Some(body), Some(count)),
            Ok(Done::Job(vm, job)) => (202, Some(json!({ "vm_uuid": vm, "job_uuid": job })), None),
            Ok(Done::Empty) => (200, None, None),
            Err(error) => {
                let (status, body) = error.into_parts()?;
                (status, Some(body), None)
            }
        };
        let mut response = self.canned(request, (status, body.as_ref()));
        let headers = response.headers_mut();
        if let Some(count) = count {
            headers.insert("x-joyent-resource-count", count.into());
        }
        if status == 202 {
            let url = self.peers().workflow_url.parse();
            headers.insert("workflow-api", url.unwrap_or(HeaderValue::from_static("")));
        }
        Some(response)
    }

    fn operate(
        &self,
        request: &Request<Bytes>,
        found: &Found<Route>,
        actions: &[Action],
    ) -> Result<Done, ApiError> {
        let (route, mut uuid) = (found.endpoint.route, found.part("uuid"));
        let query = restify::from_query(request.uri().query().unwrap_or_default());
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        // The body goes before the query, and the path before both, unless the body is a list.
        let mut given = Params::new();
        if !reads {
            match restify::merge_body(&mut given, request.headers(), request.body(), false) {
                Ok(()) => {}
                Err(BadBody::Syntax(why)) => {
                    let message = format!("Invalid JSON: {why}");
                    return Err(ApiError::Plain(400, "InvalidContent", message));
                }
                Err(BadBody::List) => {
                    let other = query.get("uuid").and_then(Value::as_str);
                    uuid = other.ok_or_else(|| ApiError::uuid("uuid"))?;
                }
                Err(BadBody::NotAnObject) => return Err(ApiError::uuid("uuid")),
            }
        }
        for (name, value) in &query {
            if given.get(name).is_none_or(falsy) {
                given.insert(name.clone(), value.clone());
            }
        }
        let needs_jobs = matches!(route, Route::Vms | Route::Vm | Route::OfVm);
        if !reads && needs_jobs && !self.peers().workflow {
            let message = "Workflow API is unavailable".to_owned();
            return Err(ApiError::Plain(503, "ServiceUnavailableError", message));
        }
        match (route, request.method().as_str()) {
            (Route::Ping, _) => self.ping(),
            (Route::Statuses, _) => self.statuses(&given),
            (Route::Changefeeds, _) => Ok(Done::Json(json!({ "vm": resource() }))),
            (Route::FeedStats, _) => Ok(Done::Json(self.feed().stats())),
            (Route::Vms, "PUT") => self.put_all(&query, &given, actions).map(|()| Done::Empty),
            (Route::Vms, "POST") => {
                let vm = self.create(&given)?;
                self.take_package(&mut given)?;
                let job = self.start_job("create", &vm, given);
                Ok(Done::Job(vm, job))
            }
            (Route::Vms, _) => {
                let wanted = list::wanted(&given)?;
                let vms = self.records()?;
                let (count, page) = wanted.page(vms.values());
                let roles = |vm: &Record| self.role_tags(text(vm, "uuid"));
                let fields = wanted.fields.as_deref();
                let shown = page.iter().map(|vm| with_fields(vm, fields, &roles(vm)));
                let mut shown: Vec<Value> = shown.collect();
                if fields.is_some_and(|fields| fields.split(',').any(|name| name == "*")) {
                    as_the_first(&mut shown);
                }
                Ok(Done::Page(count, Value::Array(shown)))
            }
            (Route::Vm, _) if uuid.is_empty() => Ok(Done::Empty),
            (Route::Vm, "PUT") => {
                given.insert("uuid".to_owned(), json!(uuid));
                self.put_one(&given).map(|vm| Done::Json(Value::Object(vm)))
            }
            (Route::Vm, "GET" | "HEAD") => self.read(uuid, &given).map(Done::Json),
            (Route::Vm, "DELETE") => self.delete(uuid, &given),
            (Route::Vm, _) => {
                let vm = self.known(uuid, &given)?;
                let action = check_action(&given)?;
                self.act(uuid, action, vm, given)
            }
            (Route::OfVm, "GET") if found.part("what") == "jobs" => {
                self.known(uuid, &query)?;
                Ok(Done::Json(self.jobs(Some(uuid), &query)))
            }
            (Route::Jobs, _) => Ok(Done::Json(self.jobs(None, &query))),
            (Route::Job, _) => {
                let job = self.work().jobs.as_ref().and_then(|jobs| jobs.get(uuid));
                job.map(|job| Done::Json(Value::Object(job))).ok_or(ApiError::NotFound("job"))
            }
            (Route::OfVm, method) => {
                let name = Some(found.part("name")).filter(|name| !name.is_empty());
                self.of_vm(method, (uuid, found.part("what"), name), &query, given)
            }
            (Route::Migrations, _) => self.records().map(|_| Done::Json(json!([]))),
            (Route::Migration, _) => self.migration(uuid),
            (Route::Progress, _) => Ok(Done::Empty),
            (Route::Move, _) => self.move_vm(uuid, &given).map(|vm| Done::Json(Value::Object(vm))),
            (Route::StoreMigration, _) if !self.peers().storage => {
                Err(ApiError::Storage("no connections available".to_owned()))
            }
            (Route::StoreMigration, _) => Err(not_kept("migrations")),
        }
    }

    fn ping(&self) -> Result<Done, ApiError> {
        let Peers { workflow, storage, .. } = *self.peers();
        let word = |up: bool| if up { "online" } else { "offline" };
        let mut errors = Map::new();
        if !storage {
            let message = "no connections available";
            let error = json!({ "name": "NoBackendsError", "jse_shortmsg": message, "jse_info": {}, "message": message });
            errors.insert("moray".to_owned(), error);
        }
        let healthy = workflow && storage;
        let body = json!({
            "dataMigrations": { "latestCompletedMigrations": { "vms": 1 } },
            "healthy": healthy,
            "initialization": { "moray": { "status": "BUCKETS_REINDEX_DONE" } },
            "pid": std::process::id(),
            "pingErrors": errors,
            "status": if healthy { "OK" } else { "some services are not ready" },
            "services": { "moray": word(storage), "wfapi": word(workflow) },
        });
        if healthy { Ok(Done::Json(body)) } else { Err(ApiError::Passed(503, body)) }
    }

    fn statuses(&self, given: &Params) -> Result<Done, ApiError> {
        let Some(uuids) = given.get("uuids").and_then(Value::as_str) else {
            return Err(ApiError::parameters(vec![missing("uuids")]));
        };
        let vms = self.records()?;
        let state = |uuid: &str| Some((uuid.to_owned(), find(&vms, uuid)?.get("state")?.clone()));
        Ok(Done::Json(Value::Object(uuids.split(',').filter_map(state).collect())))
    }

    fn delete(&self, uuid: &str, given: &Params) -> Result<Done, ApiError> {
        let vm = self.known(uuid, given)?;
        if vm.get("server_uuid").is_none_or(falsy) {
            let message = "Cannot delete a VM with no server_uuid".to_owned();
            return Err(ApiError::Plain(409, "ConflictError", message));
        }
        match self.peers().refuses_jobs.clone() {
            Some((status, body)) => Err(ApiError::Passed(status, body)),
            None => Ok(Done::Job(uuid.to_owned(), self.start_job("delete", uuid, vm))),
        }
    }

    /// Actions are jobs, where somebody runs jobs that can do them.
    fn act(
        &self,
        uuid: &str,
        action: &str,
        vm: Map<String, Value>,
        mut given: Params,
    ) -> Result<Done, ApiError> {
        let verb = JOBS.into_iter().find(|verb| *verb == action && self.runs_jobs());
        let verb = verb.ok_or_else(|| not_kept("actions"))?;
        if let Some(owner) = vm.get("owner_uuid") {
            given.entry("owner_uuid").or_insert_with(|| owner.clone());
        }
        Ok(Done::Job(uuid.to_owned(), self.start_job(verb, uuid, given)))
    }

    fn migration(&self, uuid: &str) -> Result<Done, ApiError> {
        check_uuids(uuid, &Params::new())?;
        let vms = self.records()?;
        let vm = find(&vms, uuid);
        match vm.and_then(|vm| vm.get("server_uuid")).filter(|server| !falsy(server)) {
            Some(_) => Err(ApiError::NotFound("migration")),
            None => {
                Err(ApiError::Plain(412, "PreconditionFailed", "Invalid vm instance".to_owned()))
            }
        }
    }
}

/// What a VM can be asked to do.
const ACTIONS: [&str; 16] = [
    "start",
    "stop",
    "kill",
    "reboot",
    "reprovision",
    "update",
    "add_nics",
    "update_nics",
    "remove_nics",
    "create_snapshot",
    "rollback_snapshot",
    "delete_snapshot",
    "create_disk",
    "resize_disk",
    "delete_disk",
    "migrate",
];

/// Those that jobs can do here.
const JOBS: [&str; 7] =
    ["start", "stop", "reboot", "reprovision", "update", "add_nics", "remove_nics"];

fn check_action(given: &Params) -> Result<&'static str, ApiError> {
    let Some(action) = given.get("action").filter(|action| !falsy(action)) else {
        return Err(ApiError::parameters(vec![missing("action")]));
    };
    let known = ACTIONS.into_iter().find(|known| action.as_str() == Some(known));
    known.ok_or_else(|| ApiError::invalid("action", "Invalid parameter"))
}

fn check_accept(request: &Request<Bytes>) -> Result<(), ApiError> {
    let accept = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let accept = accept.unwrap_or("*/*");
    if accept
        .split(',')
        .any(|kind| SERVED.contains(&kind.split(';').next().unwrap_or_default().trim()))
    {
        return Ok(());
    }
    let served = "application/json,text/plain,application/octet-stream";
    let message = format!(
        "Server accepts: {served},application/x-json-stream,*/*,{served},application/javascript"
    );
    Err(ApiError::Plain(406, "NotAcceptableError", message))
}

/// All fields are those of the first VM of a list.
fn as_the_first(vms: &mut [Value]) {
    let Some((Value::Object(first), others)) = vms.split_first_mut() else { return };
    for vm in others.iter_mut().filter_map(Value::as_object_mut) {
        vm.retain(|name, _| first.contains_key(name));
    }
}

fn version(route: Route) -> [u32; 3] {
    match route {
        Route::Changefeeds | Route::FeedStats => FEED_VERSION,
        _ => VERSION,
    }
}

/// 501 for what the real service has and this mock has not.
fn not_kept(what: &str) -> ApiError {
    ApiError::Plain(501, "NotImplemented", format!("this mock has no {what}"))
}

/// What the changefeed tells of.
fn resource() -> Value {
    let parts = [
        "alias",
        "customer_metadata",
        "destroyed",
        "internal_metadata",
        "nics",
        "owner_uuid",
        "server_uuid",
        "state",
        "tags",
    ];
    json!({ "resource": "vm", "subResources": parts, "bootstrapRoute": "/vms" })
}
