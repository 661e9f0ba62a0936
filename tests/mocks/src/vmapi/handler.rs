// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The way of a request: the routes and their checks.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use serde_json::{Map, Value, json};

use super::errors::{ApiError, missing};
use super::list;
use super::record::{Record, kept, with_fields};
use super::store::{Peers, Store, find};
use crate::faults::{Action, Door, Faults, Listed, Recorder, Service, bad};
use crate::restify::{self, BadBody, Params, falsy, is_uuid};

const VERSION: [u32; 3] = [9, 16, 0];
/// What an `Accept` header may ask for; the answer is JSON in any case.
const SERVED: [&str; 6] = [
    "application/json",
    "text/plain",
    "application/octet-stream",
    "application/x-json-stream",
    "*/*",
    "application/*",
];

/// A route with the variable parts of its path.
enum Route<'a> {
    Ping,
    Statuses,
    Changefeeds,
    Vms,
    Vm(&'a str),
    /// Something of a VM that this mock does not have.
    OfVm,
    Migrations,
    Migration(&'a str),
    MigrationStep(&'a str, &'a str),
}

impl<'a> Route<'a> {
    fn find(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let open = path.ends_with('/');
        Some(match *parts.as_slice() {
            ["ping"] => Route::Ping,
            ["statuses"] => Route::Statuses,
            ["changefeeds"] => Route::Changefeeds,
            ["vms"] if open => Route::Vm(""),
            ["vms"] => Route::Vms,
            ["vms", uuid] if !open => Route::Vm(uuid),
            ["vms", ..] => Route::OfVm,
            ["migrations"] if open => Route::Migration(""),
            ["migrations"] => Route::Migrations,
            ["migrations", uuid] => Route::Migration(uuid),
            ["migrations", uuid, step @ ("progress" | "store" | "updateVmServerUuid")] => {
                Route::MigrationStep(uuid, step)
            }
            _ => return None,
        })
    }

    fn methods(&self) -> &'static [&'static str] {
        match self {
            Route::Ping | Route::Statuses | Route::Changefeeds | Route::OfVm => &["GET", "HEAD"],
            Route::Vms => &["GET", "HEAD", "POST", "PUT"],
            Route::Vm(_) => &["GET", "HEAD", "POST", "PUT", "DELETE"],
            Route::Migrations | Route::Migration(_) => &["GET"],
            Route::MigrationStep(..) => &["POST"],
        }
    }
}

/// A success.
enum Done {
    Json(Value),
    /// A page, and how many records match.
    Page(usize, Value),
    /// 202: a job for this VM.
    Job(String),
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
            _ => return Ok(None),
        }))
    }

    fn canned(
        &self,
        request: &Request<Bytes>,
        status: u16,
        body: Option<&Value>,
    ) -> Response<Bytes> {
        restify::routed(request, "VMAPI/9.16.0", self.now_ms(), (status, body))
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
            self.respond(request, actions)
        })
    }
}

impl Store {
    /// Finds the route and runs it; nothing if the process died of it.
    fn respond(&self, request: &Request<Bytes>, actions: &[Action]) -> Option<Response<Bytes>> {
        let (method, path) = (request.method(), request.uri().path());
        let Some(route) = Route::find(path) else {
            let message = format!("{path} does not exist");
            return Some(restify::plain(method, 404, "ResourceNotFound", &message));
        };
        if !route.methods().contains(&method.as_str()) {
            return Some(restify::not_allowed(method, route.methods()));
        }
        if let Some(range) = restify::asked_version(request)
            && !restify::version_fits(range, VERSION)
        {
            let message = format!("{range} is not supported by {method} {path}");
            return Some(restify::plain(method, 400, "InvalidVersion", &message));
        }
        let done = check_accept(request).and_then(|()| self.operate(request, &route, actions));
        let (status, body, count) = match done {
            Ok(Done::Json(body)) => (200, Some(body), None),
            Ok(Done::Page(count, body)) => (200, Some(body), Some(count)),
            Ok(Done::Job(uuid)) => {
                let job = uuid::Uuid::new_v4().to_string();
                (202, Some(json!({ "vm_uuid": uuid, "job_uuid": job })), None)
            }
            Ok(Done::Empty) => (200, None, None),
            Err(error) => {
                let (status, body) = error.into_parts()?;
                (status, Some(body), None)
            }
        };
        let mut response = self.canned(request, status, body.as_ref());
        let headers = response.headers_mut();
        if let Some(count) = count {
            headers.insert("x-joyent-resource-count", count.into());
        }
        if status == 202 {
            headers.insert("workflow-api", HeaderValue::from_static("http://workflow.mock"));
        }
        Some(response)
    }

    fn operate(
        &self,
        request: &Request<Bytes>,
        route: &Route<'_>,
        actions: &[Action],
    ) -> Result<Done, ApiError> {
        let query = restify::from_query(request.uri().query().unwrap_or_default());
        let mut given = query.clone();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads {
            match restify::merge_body(&mut given, request, false) {
                Ok(()) => {}
                Err(BadBody::Syntax(why)) => {
                    let message = format!("Invalid JSON: {why}");
                    return Err(ApiError::Plain(400, "InvalidContent", message));
                }
                Err(BadBody::NotAnObject) => return Err(ApiError::uuid("uuid")),
            }
        }
        if !reads && matches!(route, Route::Vms | Route::Vm(_)) && !self.peers().workflow {
            let message = "Workflow API is unavailable".to_owned();
            return Err(ApiError::Plain(503, "ServiceUnavailableError", message));
        }
        match (route, request.method().as_str()) {
            (Route::Ping, _) => self.ping(),
            (Route::Statuses, _) => self.statuses(&given),
            (Route::Changefeeds, _) => Ok(Done::Json(changefeeds())),
            (Route::Vms, "PUT") => self.put_all(&query, &given, actions),
            (Route::Vms, "POST") => self.create(&given).map(Done::Job),
            (Route::Vms, _) => {
                let wanted = list::wanted(&given)?;
                let vms = self.records()?;
                let (count, page) = wanted.page(vms.values());
                let shown = page.iter().map(|vm| with_fields(vm, wanted.fields.as_deref()));
                Ok(Done::Page(count, shown.collect()))
            }
            (Route::Vm(""), _) => Ok(Done::Empty),
            (Route::Vm(uuid), "PUT") => {
                given.insert("uuid".to_owned(), json!(uuid));
                self.put_one(&given).map(|vm| Done::Json(Value::Object(vm)))
            }
            (Route::Vm(uuid), "GET" | "HEAD") => self.read(uuid, &given).map(Done::Json),
            (Route::Vm(uuid), "DELETE") => self.delete(uuid, &given),
            (Route::Vm(uuid), _) => {
                self.known(uuid, &given)?;
                Err(not_kept("actions"))
            }
            (Route::OfVm, _) => {
                Err(ApiError::Plain(404, "ResourceNotFound", "Route does not exist".to_owned()))
            }
            (Route::Migrations, _) => self.records().map(|_| Done::Json(json!([]))),
            (Route::Migration(uuid), _) => self.migration(uuid),
            (Route::MigrationStep(_, "progress"), _) => Ok(Done::Empty),
            (Route::MigrationStep(uuid, "updateVmServerUuid"), _) => self.move_vm(uuid, &given),
            (Route::MigrationStep(..), _) if !self.peers().storage => {
                Err(ApiError::Storage("no connections available".to_owned()))
            }
            (Route::MigrationStep(..), _) => Err(not_kept("migrations")),
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

    /// The record of a VM, if its owner is the one that was asked for.
    fn known(&self, uuid: &str, given: &Params) -> Result<Record, ApiError> {
        check_uuids(uuid, given)?;
        let owner = given.get("owner_uuid").filter(|owner| !falsy(owner));
        let vms = self.records()?;
        let found =
            find(&vms, uuid).filter(|vm| owner.is_none_or(|it| vm.get("owner_uuid") == Some(it)));
        found.cloned().ok_or(ApiError::NotFound("VM"))
    }

    fn read(&self, uuid: &str, given: &Params) -> Result<Value, ApiError> {
        let mut vm = self.known(uuid, given)?;
        if given.get("sync").is_some_and(|sync| sync == "true") {
            let copy = self.peers().copies.get(uuid).cloned();
            match copy {
                // The answer is the old record.
                Some((200, copy)) => {
                    let copy = copy.as_object().map(kept).unwrap_or_default();
                    self.records()?.insert(uuid.to_owned(), copy);
                }
                Some((status, body)) => return Err(ApiError::Passed(status, body)),
                None => {
                    let provisioning = vm.get("state").is_some_and(|state| state == "provisioning");
                    self.end(&mut vm, if provisioning { "failed" } else { "destroyed" });
                    self.records()?.insert(uuid.to_owned(), vm.clone());
                }
            }
        }
        Ok(with_fields(&vm, given.get("fields").and_then(Value::as_str)))
    }

    fn end(&self, vm: &mut Record, state: &str) {
        vm.insert("state".to_owned(), json!(state));
        vm.insert("zone_state".to_owned(), json!(state));
        if state == "destroyed" {
            vm.insert("destroyed".to_owned(), self.now());
        }
    }

    /// Replaces a record; `destroyed` is the server's time, whatever was sent.
    fn put_one(&self, given: &Params) -> Result<Record, ApiError> {
        check_uuids(given.get("uuid").and_then(Value::as_str).unwrap_or_default(), given)?;
        let mut vm = kept(given);
        if vm.get("state").is_some_and(|state| state == "destroyed") {
            self.end(&mut vm, "destroyed");
        }
        let uuid = vm.get("uuid").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.records()?.insert(uuid, vm.clone());
        Ok(vm)
    }

    /// Writes exactly the VMs of the map, as they were sent and one after another. The server in the query
    /// is checked and changes nothing.
    fn put_all(
        &self,
        query: &Params,
        given: &Params,
        actions: &[Action],
    ) -> Result<Done, ApiError> {
        match query.get("server_uuid").and_then(Value::as_str) {
            None | Some("") => return Err(ApiError::parameters(vec![missing("server_uuid")])),
            Some(server) if is_uuid(server) => {}
            Some(_) => return Err(ApiError::uuid("server_uuid")),
        }
        let Some(vms) = given.get("vms").filter(|vms| !falsy(vms)) else {
            return Err(ApiError::parameters(vec![missing("vms")]));
        };
        let vms = vms.as_object().ok_or(ApiError::Died)?;
        let most = actions.iter().find_map(|action| match action {
            Action::FailWrite { after } => Some(*after),
            _ => None,
        });
        for (at, (key, vm)) in vms.iter().enumerate() {
            if most.is_some_and(|most| at >= most) {
                return Err(ApiError::Storage("no active connections".to_owned()));
            }
            let (true, Some(vm)) = (is_uuid(key), vm.as_object()) else {
                return Err(ApiError::Died);
            };
            let vm = kept(vm);
            let has_uuid = vm.contains_key("uuid");
            self.records()?.insert(key.clone(), vm);
            if !has_uuid {
                return Err(ApiError::Died);
            }
        }
        Ok(Done::Empty)
    }

    fn delete(&self, uuid: &str, given: &Params) -> Result<Done, ApiError> {
        let vm = self.known(uuid, given)?;
        if vm.get("server_uuid").is_none_or(falsy) {
            let message = "Cannot delete a VM with no server_uuid".to_owned();
            return Err(ApiError::Plain(409, "ConflictError", message));
        }
        match self.peers().refuses_jobs.clone() {
            Some((status, body)) => Err(ApiError::Passed(status, body)),
            None => Ok(Done::Job(uuid.to_owned())),
        }
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

    /// The step of a switch that replaces the whole record with the node's uuid.
    fn move_vm(&self, uuid: &str, given: &Params) -> Result<Done, ApiError> {
        let server = given.get("server_uuid").and_then(Value::as_str).unwrap_or_default();
        if !is_uuid(server) || find(&*self.records()?, uuid).is_none() {
            return Err(ApiError::Died);
        }
        let vm = json!({ "uuid": uuid, "server_uuid": server });
        let vm = self.put_one(vm.as_object().unwrap_or(&Params::new()))?;
        Ok(Done::Json(Value::Object(vm)))
    }
}

fn check_uuids(uuid: &str, given: &Params) -> Result<(), ApiError> {
    if !is_uuid(uuid) {
        return Err(ApiError::uuid("uuid"));
    }
    match given.get("owner_uuid").filter(|owner| !falsy(owner)) {
        Some(owner) if !owner.as_str().is_some_and(is_uuid) => Err(ApiError::uuid("owner_uuid")),
        _ => Ok(()),
    }
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

/// 501 for what the real service has and this mock has not.
fn not_kept(what: &str) -> ApiError {
    ApiError::Plain(501, "NotImplemented", format!("this mock has no {what}"))
}

fn changefeeds() -> Value {
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
    json!({ "vm": { "resource": "vm", "subResources": parts, "bootstrapRoute": "/vms" } })
}
