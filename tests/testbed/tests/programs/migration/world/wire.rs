// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The transport of one agent: each request waits for the scheduler and is then answered at once.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use mocks::transport::InProcess;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::SYNCED;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{Answered, CN, Held, Kind, MAC, VM, World, is_view};

/// One agent's wire.
pub(super) struct Wire {
    pub(super) world: World,
    pub(super) node: usize,
    pub(super) napi: InProcess,
    pub(super) vmapi: InProcess,
}

impl Wire {
    fn vminfod(&self, path: &str) -> Response {
        let inner = self.world.lock();
        let vms = &inner.nodes[self.node].vms;
        match path {
            "/vms" => reply(200, &Value::Array(vms.values().cloned().collect())),
            _ => {
                let name = path.trim_start_matches("/vms/");
                let missing = || Response {
                    status: StatusCode::NOT_FOUND,
                    headers: HeaderMap::new(),
                    body: Bytes::from(format!("VM Not Found: {name}")),
                };
                vms.get(name).map_or_else(missing, |vm| reply(200, vm))
            }
        }
    }

    /// Keeps a request, and what is wrong with it now that it is made.
    fn judge(&self, request: &Request, label: &str) {
        let mut inner = self.world.lock();
        let (kind, held) = (self.world.kind, inner.held);
        let node = &mut inner.nodes[self.node];
        let writes = request.method != Method::GET;
        let names = match kind {
            Kind::Net => writes && label.contains(&MAC.replace(':', "")),
            Kind::Vm => label.contains("vmapi.lab") && label.contains(VM),
        };
        let is_bare = kind == Kind::Net && request.headers.get("if-match").is_none();
        for (is_so, wrong) in [
            (names && node.hidden, "it names a hidden VM"),
            (writes && held, "it writes what is held"),
            (writes && is_bare, "it writes without a condition"),
            (node.heard.has_old_view() && !is_view(label), "it goes by a view that is too old"),
        ] {
            if is_so {
                node.wrongs.push(format!("{wrong}: {label}"));
            }
        }
        node.asked.push(label.to_owned());
    }

    async fn gate(&self, label: &str) -> Answered {
        let waits = {
            let mut inner = self.world.lock();
            if inner.free[self.node] {
                return Answered::InTime;
            }
            let (go, waits) = oneshot::channel();
            let (label, task) = (label.to_owned(), tokio::task::id());
            inner.nodes[self.node].held.push_back(Held { label, task, overtaken: false, go });
            waits
        };
        // A dropped gate is a stopped agent: nobody waits for the answer either.
        waits.await.unwrap_or(Answered::InTime)
    }
}

fn reply(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    Response { status, headers: HeaderMap::new(), body: Bytes::from(body.to_string()) }
}

impl Transport for Wire {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let path = request.url.path().to_owned();
            if path == "/sysinfo" {
                return Ok(reply(200, &json!({"sysinfo": {"UUID": CN[self.node]}, "age_ms": 1})));
            }
            let host = request.url.host_str().unwrap_or_default().to_owned();
            let body = request.body.clone().unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            let label = format!("{} {host} {} {body}", request.method, request.target());
            // The node has no such NICs, whenever it is asked: no order of these answers matters.
            let lists = |kind| label.contains(&format!("belongs_to_type={kind}"));
            self.judge(&request, &label);
            let answered = match lists("server") || lists("other") {
                true => Answered::InTime,
                false => self.gate(&label).await,
            };
            let outcome = match host.as_str() {
                "napi.lab" => self.napi.send(request).await,
                "vmapi.lab" => self.vmapi.send(request).await,
                _ => {
                    let mut answer = self.vminfod(&path);
                    let sync = request.url.query_pairs().find(|(key, _)| key == "sync");
                    if let Some((_, sync)) = sync {
                        answer.headers.insert(SYNCED, sync.parse().unwrap());
                    }
                    Ok(answer)
                }
            };
            let heard = match &outcome {
                Ok(answer) => (answer.status.as_u16(), text(&answer.body)),
                Err(err) => (0, err.to_string()),
            };
            let mut inner = self.world.lock();
            let node = &mut inner.nodes[self.node];
            // Of a view that it does not use, an agent learns which VMs are hidden.
            let shows_hidden = node.vms.values().any(|vm| vm["do_not_inventory"] == true);
            if is_view(&label) && (answered == Answered::InTime || shows_hidden) {
                node.overtake();
            }
            if let (true, Ok(answer)) =
                (path == format!("/vms/{VM}") && host != "vmapi.lab", &outcome)
            {
                node.learns(&answer.body);
            }
            node.heard.answered(tokio::task::id(), answered, &(label, heard));
            outcome
        })
    }

    fn stream(&self, _: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let (tell, told) = mpsc::channel(1000);
            let mut inner = self.world.lock();
            let node = &mut inner.nodes[self.node];
            let vms: Vec<_> = node.vms.values().cloned().collect();
            let ready = json!({"type": "ready", "date": "2026-01-01T00:00:00.000Z", "uuid": "e",
                "vms": serde_json::to_string(&vms).unwrap()});
            tell.try_send(Bytes::from(format!("{ready}\n"))).unwrap();
            node.heard.told(&ready.to_string());
            vms.iter().for_each(|vm| node.learns(vm.to_string().as_bytes()));
            node.events.clear();
            node.stream = Some(tell);
            let body = futures_util::stream::unfold(told, |mut told| async move {
                told.recv().await.map(|line| (Ok(line), told))
            });
            let (status, headers) = (StatusCode::OK, HeaderMap::new());
            Ok(StreamResponse { status, headers, body: Box::pin(body) })
        })
    }
}

/// An answer without its time stamps.
fn text(body: &Bytes) -> String {
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let strip = |nic: &mut Value| {
        if let Some(nic) = nic.as_object_mut() {
            nic.remove("created_timestamp");
            nic.remove("modified_timestamp");
        }
    };
    match &mut value {
        Value::Array(all) => {
            all.iter_mut().for_each(strip);
            all.sort_by_key(Value::to_string);
        }
        one => strip(one),
    }
    value.to_string()
}
