// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes of the mock VMAPI.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use super::store::Store;
use crate::faults::{Action, Faults, Recorder, Rule, Service};
use crate::napi::params::is_uuid;

const FILTERS: [&str; 23] = [
    "alias",
    "billing_id",
    "brand",
    "create_timestamp",
    "docker",
    "fields",
    "image_uuid",
    "internal_metadata",
    "limit",
    "marker",
    "offset",
    "owner_uuid",
    "package_name",
    "package_version",
    "predicate",
    "query",
    "ram",
    "server_uuid",
    "sort",
    "state",
    "uuid",
    "uuids",
    "role_tags",
];

impl Service for Store {
    fn parts(&self) -> (&Faults, &Recorder) {
        (self.faults(), self.log())
    }

    fn side_door(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let what = request.uri().path().trim_start_matches("/_mock/");
        self.admin(what, request)
    }

    fn canned(
        &self,
        request: &Request<Bytes>,
        status: u16,
        body: Option<&Value>,
    ) -> Response<Bytes> {
        build(request, status, body)
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
            Some(self.respond(request))
        })
    }
}

fn build(request: &Request<Bytes>, status: u16, body: Option<&Value>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = Bytes::from(body.map(Value::to_string).unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, text.len().into());
    let id = request.headers().get("x-request-id").cloned();
    let id = id.or_else(|| uuid::Uuid::new_v4().to_string().parse().ok());
    if let Some(id) = id {
        headers.insert("x-request-id", id);
    }
    if let Ok(date) =
        jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string().parse()
    {
        headers.insert(header::DATE, date);
    }
    if request.method() != Method::HEAD {
        *response.body_mut() = text;
    }
    response
}

fn failed(field: &str, code: &str, message: &str) -> (u16, Value) {
    let errors = json!([{ "field": field, "code": code, "message": message }]);
    (
        409,
        json!({ "code": "ValidationFailed", "message": "Invalid VM parameters", "errors": errors }),
    )
}

impl Store {
    fn respond(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let parts: Vec<&str> =
            request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        let (status, body) = match (request.method().as_str(), parts.as_slice()) {
            ("GET" | "HEAD", ["ping"]) => {
                (200, json!({ "status": "OK", "healthy": true, "services": {} }))
            }
            ("GET", ["statuses"]) => self.statuses(&query),
            ("GET" | "HEAD", ["vms"]) => {
                let (count, (status, body)) = self.list(&query);
                let mut response = build(request, status, Some(&body));
                response.headers_mut().insert("x-joyent-resource-count", count.into());
                return response;
            }
            ("PUT", ["vms"]) => match self.put_all(&query, request.body()) {
                Ok(()) => return build(request, 200, None),
                Err(error) => error,
            },
            ("GET" | "HEAD", ["vms", uuid]) => match self.get(uuid) {
                Some(vm) => (200, Value::Object(vm)),
                None => (404, json!({ "code": "ResourceNotFound", "message": "VM not found" })),
            },
            ("PUT", ["vms", uuid]) => self.put_one(uuid, request.body()),
            (_, ["ping" | "statuses" | "vms"] | ["vms", _]) => {
                let message = format!("{} is not allowed", request.method());
                (405, json!({ "code": "MethodNotAllowedError", "message": message }))
            }
            _ => {
                let message = format!("{} does not exist", request.uri().path());
                (404, json!({ "code": "ResourceNotFound", "message": message }))
            }
        };
        build(request, status, Some(&body))
    }

    fn list(&self, query: &BTreeMap<String, String>) -> (usize, (u16, Value)) {
        if let Some(name) =
            query.keys().find(|n| !FILTERS.contains(&n.as_str()) && !n.starts_with("tag."))
        {
            return (0, failed(name, "Invalid", "Invalid Parameter"));
        }
        let fits = |vm: &Map<String, Value>| {
            let text = |name: &str| vm.get(name).and_then(Value::as_str).unwrap_or_default();
            query.iter().all(|(name, wanted)| match name.as_str() {
                "state" if wanted == "active" => !matches!(text("state"), "destroyed" | "failed"),
                "uuids" => wanted.split(',').any(|uuid| uuid == text("uuid")),
                "state" | "server_uuid" | "owner_uuid" | "alias" | "brand" | "uuid"
                | "image_uuid" => text(name) == wanted,
                _ => true,
            })
        };
        let all: Vec<Value> =
            self.vms().values().rev().filter(|vm| fits(vm)).cloned().map(Value::Object).collect();
        let number = |name: &str| query.get(name).and_then(|n| n.parse::<usize>().ok());
        let after = query.get("marker").cloned();
        let page = all
            .iter()
            .filter(|vm| {
                after
                    .as_ref()
                    .is_none_or(|mark| vm["uuid"].as_str().is_some_and(|u| u < mark.as_str()))
            })
            .skip(number("offset").unwrap_or(0))
            .take(number("limit").unwrap_or(1000).min(1000))
            .cloned()
            .collect();
        (all.len(), (200, page))
    }

    fn statuses(&self, query: &BTreeMap<String, String>) -> (u16, Value) {
        let Some(uuids) = query.get("uuids") else {
            return failed("uuids", "MissingParameter", "is missing");
        };
        let vms = self.vms();
        let known = uuids
            .split(',')
            .filter_map(|uuid| Some((uuid.to_owned(), vms.get(uuid)?.get("state")?.clone())));
        (200, Value::Object(known.collect()))
    }

    fn put_one(&self, uuid: &str, body: &[u8]) -> (u16, Value) {
        match serde_json::from_slice::<Map<String, Value>>(body) {
            Ok(mut vm) => {
                vm.insert("uuid".to_owned(), json!(uuid));
                // The server's time, whatever was sent; the PUT of a map stamps nothing.
                if vm.get("state").and_then(Value::as_str) == Some("destroyed") {
                    vm.insert("zone_state".to_owned(), json!("destroyed"));
                    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
                    vm.insert("destroyed".to_owned(), json!(now));
                }
                self.put(vm.clone());
                (200, Value::Object(vm))
            }
            Err(error) => (
                400,
                json!({ "code": "InvalidContent", "message": format!("Invalid JSON: {error}") }),
            ),
        }
    }

    /// Writes exactly the VMs of the map, as they were sent. The server in the query is checked
    /// and changes nothing.
    fn put_all(&self, query: &BTreeMap<String, String>, body: &[u8]) -> Result<(), (u16, Value)> {
        match query.get("server_uuid").map(String::as_str) {
            None | Some("") => return Err(failed("server_uuid", "MissingParameter", "is missing")),
            Some(server) if is_uuid(server) => {}
            Some(_) => return Err(failed("server_uuid", "Invalid", "Invalid UUID")),
        }
        let body: Value = serde_json::from_slice(body).map_err(|e| {
            (400, json!({ "code": "InvalidContent", "message": format!("Invalid JSON: {e}") }))
        })?;
        let Some(given) = body["vms"].as_object() else {
            return Err(failed("vms", "MissingParameter", "is missing"));
        };
        let mut vms = self.vms();
        for (uuid, vm) in given.iter().filter_map(|(uuid, vm)| Some((uuid, vm.as_object()?))) {
            let mut vm = vm.clone();
            vm.insert("uuid".to_owned(), json!(uuid));
            vms.insert(uuid.clone(), vm);
        }
        Ok(())
    }

    fn admin(&self, what: &str, request: &Request<Bytes>) -> Response<Bytes> {
        let outcome = match (request.method(), what) {
            (&Method::POST, "faults") => {
                serde_json::from_slice::<Rule>(request.body()).map(|rule| {
                    self.faults().add(rule);
                    json!({ "added": 1 })
                })
            }
            (&Method::DELETE, "faults") => {
                self.faults().clear();
                Ok(json!({}))
            }
            (&Method::GET, "requests") => serde_json::to_value(self.log().all()),
            (&Method::POST, "seed") => {
                serde_json::from_slice::<Vec<Map<String, Value>>>(request.body()).map(|vms| {
                    vms.into_iter().for_each(|vm| self.put(vm));
                    json!({})
                })
            }
            (&Method::GET, "dump") => Ok(json!({ "vms": self.all() })),
            _ => return build(request, 404, Some(&json!({ "message": "no such side door" }))),
        };
        match outcome {
            Ok(body) => build(request, 200, Some(&body)),
            Err(error) => build(request, 400, Some(&json!({ "message": error.to_string() }))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Mock, Reply};

    const CN: &str = "00000000-0000-4000-8000-0000000000c1";
    const OTHER_CN: &str = "00000000-0000-4000-8000-0000000000c2";

    async fn put(store: &Store, target: &str, body: &Value) -> (u16, Value) {
        let request = Request::put(target).body(Bytes::from(body.to_string())).unwrap();
        let Reply::Full(response) = store.handle(request).await else { panic!("a whole answer") };
        let status = response.status().as_u16();
        (status, serde_json::from_slice(response.body()).unwrap_or_default())
    }

    fn store() -> Store {
        let store = Store::default();
        store.set("kept", "running", Some(CN));
        store.set("changed", "running", Some(CN));
        store.set("elsewhere", "running", Some(OTHER_CN));
        store
    }

    #[tokio::test]
    async fn a_put_of_a_map_writes_its_vms_and_no_other() {
        let store = store();
        let untouched = [store.get("kept"), store.get("elsewhere")];
        let vms = json!({
            "changed": {"state": "stopped", "server_uuid": OTHER_CN},
            "new": {"state": "destroyed"},
        });
        let target = format!("/vms?server_uuid={CN}");
        assert_eq!(put(&store, &target, &json!({"vms": vms})).await, (200, Value::Null));
        assert_eq!([store.get("kept"), store.get("elsewhere")], untouched);
        // As sent: neither the server of the query nor a time is added.
        let changed = json!({"state": "stopped", "server_uuid": OTHER_CN, "uuid": "changed"});
        assert_eq!(store.get("changed").as_ref(), changed.as_object());
        let new = json!({"state": "destroyed", "uuid": "new"});
        assert_eq!(store.get("new").as_ref(), new.as_object());
        assert_eq!(put(&store, &target, &json!({"vms": {}})).await.0, 200);
        assert_eq!(store.all().len(), 4);
    }

    #[tokio::test]
    async fn a_put_of_a_map_is_refused_before_anything_is_written() {
        let store = store();
        let before = store.all();
        let vms = json!({"vms": {"kept": {"state": "destroyed"}}});
        let upper = CN.to_uppercase().replace('C', "D");
        for (query, body, field, code) in [
            ("", &vms, "server_uuid", "MissingParameter"),
            ("?server_uuid=", &vms, "server_uuid", "MissingParameter"),
            ("?server_uuid=x", &json!({}), "server_uuid", "Invalid"),
            (&*format!("?server_uuid={upper}"), &vms, "server_uuid", "Invalid"),
            (&*format!("?server_uuid={CN}"), &json!({}), "vms", "MissingParameter"),
            (&*format!("?server_uuid={CN}"), &json!({"vms": null}), "vms", "MissingParameter"),
        ] {
            let (status, answer) = put(&store, &format!("/vms{query}"), body).await;
            assert_eq!((status, &answer["code"]), (409, &json!("ValidationFailed")), "{query}");
            let error = &answer["errors"][0];
            assert_eq!((&error["field"], &error["code"]), (&json!(field), &json!(code)), "{query}");
        }
        assert_eq!(store.all(), before);
    }

    #[tokio::test]
    async fn a_put_of_one_destroyed_vm_is_stamped() {
        let store = store();
        let (status, vm) = put(&store, "/vms/kept", &json!({"state": "destroyed"})).await;
        assert_eq!((status, &vm["zone_state"]), (200, &json!("destroyed")));
        assert!(vm["destroyed"].as_str().is_some_and(|at| at.ends_with('Z')), "{vm}");
        assert_eq!(store.get("kept").as_ref(), vm.as_object());
    }
}
