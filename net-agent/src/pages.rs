// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the agent shows, and to whom: pages for every process of the node on a loopback port,
//! which change nothing and cause no request, and a unix socket for root alone, where a plan is
//! offered and approved and a NIC is explained.

use std::sync::Arc;
use std::time::Duration;

use daemon::http::{Body, Limits, Router, Server, collect, refuse, reply_json};
use daemon::log::AUDIT;
use daemon::{Shutdown, Tasks};
use http::{Method, Request, Response, StatusCode};
use sdc_clients::MacAddr;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::metrics::{self, Gauge, Reading};
use crate::status::Count;

/// The longest body that a client of the socket may send.
const BODY: usize = 4096;
/// How long it may take to send it.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Connections of each listener at once.
pub(crate) const CONNECTIONS: usize = 256;

/// Caps of both listeners: a board, not a service.
fn limits() -> Limits {
    Limits { connections: CONNECTIONS, requests_per_second: 200, ..Limits::default() }
}

impl Agent {
    /// Serves the pages on this port and the operator's verbs on the configured socket, until
    /// the shutdown.
    pub fn listen(self: &Arc<Self>, port: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let (shown, server) = (Arc::clone(self), Server::new(limits(), shutdown.clone()));
        let pages = Router::new().fallback(move |asked| Arc::clone(&shown).answer(asked));
        tasks.spawn("status", server.serve(port, pages));
        let socket = &self.shared.config.control_socket;
        match daemon::http::bind_unix(socket, 0o600) {
            Ok(bound) => {
                let (told, server) = (Arc::clone(self), Server::new(limits(), shutdown.clone()));
                let verbs = Router::new().fallback(move |asked| Arc::clone(&told).control(asked));
                tasks.spawn("control", server.serve(bound, verbs));
            }
            // NICs are kept up without it; only approvals have to wait.
            Err(err) => {
                tracing::error!(socket = %socket.display(), reason = %err, "no control socket");
            }
        }
    }

    /// Answers on the loopback port.
    pub async fn answer(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        self.page(request.method(), request.uri().path())
    }

    fn page(&self, method: &Method, path: &str) -> Response<Body> {
        let page = match path {
            "/ping" => json!({"ping": "pong"}),
            "/status" => self.status_json(),
            "/plan" => self.plan_json(),
            "/holds" => self.holds_json(),
            "/metrics" if method == Method::GET => {
                return daemon::metrics::answer(&metrics::registry(self.reading()));
            }
            "/metrics" => Value::Null,
            _ => return missing(path),
        };
        if method != Method::GET {
            return wrong_method("GET");
        }
        reply_json(StatusCode::OK, &page)
    }

    /// Answers on the unix socket: the same pages, and the operator's verbs.
    pub async fn control(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        match (&parts.method, path.as_str()) {
            (&Method::POST, "/plan") => reply_json(StatusCode::OK, &self.offer().await),
            (&Method::POST, "/approve") => {
                let Some(bytes) = collect(body, BODY, BODY_TIME).await else {
                    return invalid("the body is too long, or did not come");
                };
                let asked: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                match asked.get("id").and_then(Value::as_str) {
                    Some(id) => self.approve(id),
                    None => invalid("the body must be {\"id\": PLAN-ID}"),
                }
            }
            (_, "/approve") => wrong_method("POST"),
            (method, path) => match path.strip_prefix("/nics/") {
                Some(mac) if method == Method::GET => match mac.parse::<MacAddr>() {
                    Ok(mac) => reply_json(StatusCode::OK, &self.explain(mac).await),
                    Err(err) => invalid(&format!("{mac}: {err}")),
                },
                Some(_) => wrong_method("GET"),
                None => self.page(method, path),
            },
        }
    }

    fn approve(&self, id: &str) -> Response<Body> {
        match self.shared.approve(id) {
            Ok(nics) => {
                self.wake_departed();
                tracing::warn!(target: AUDIT, audit = true, id, nics, "the operator approved a plan");
                reply_json(StatusCode::OK, &json!({"id": id, "nics": nics}))
            }
            Err(refused) => {
                tracing::warn!(target: AUDIT, audit = true, id, reason = %refused, "approval refused");
                refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &refused.to_string())
            }
        }
    }

    /// `/status`.
    pub fn status_json(&self) -> Value {
        let mut page = self.shared.status.to_json();
        let config = &self.shared.config;
        let strays = self.shared.strays();
        for (key, value) in [
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("cn_uuid", config.cn_uuid.clone().into()),
            ("mode", format!("{:?}", config.mode).to_lowercase().into()),
            ("mute", self.shared.mute().into()),
            ("vms", self.shared.look(|i| i.view.vms.len()).into()),
            ("candidates", self.shared.open().into()),
            ("requests", self.clients.pace.taken().into()),
            ("holds", self.holds_json()),
            ("departed", self.departed_json()),
            ("from_last_run", strays.keys().map(ToString::to_string).collect()),
        ] {
            page[key] = value;
        }
        page
    }

    /// `/plan`.
    pub fn plan_json(&self) -> Value {
        let mut page = self.shared.status.plan_json();
        page["departed"] = self.departed_json();
        page["braked"] = self.shared.status.braked().into();
        page["approval"] = self.shared.offered().map_or(Value::Null, |(offer, left)| {
            let nics: Vec<Value> = offer
                .pairs
                .iter()
                .map(|(mac, etag)| json!({"mac": mac.to_string(), "etag": etag}))
                .collect();
            json!({"id": offer.id, "expires_in_s": left.as_secs(), "nics": nics})
        });
        page
    }

    fn departed_json(&self) -> Value {
        let now = self.shared.clock();
        let all = self.shared.all_departed();
        let ms = |due: Duration| u64::try_from(due.saturating_sub(now).as_millis());
        all.iter()
            .map(|(mac, d)| {
                json!({"mac": mac.to_string(), "vm": d.vm, "why": d.why, "tries": d.tries,
                    "left": d.left, "due_in_ms": ms(d.due).unwrap_or(u64::MAX)})
            })
            .collect()
    }

    fn holds_json(&self) -> Value {
        let now = jiff::Timestamp::now();
        let holds = self.shared.holds.read_or_hold_all(now);
        let live: Vec<_> = holds.in_force(now).cloned().collect();
        serde_json::to_value(live).unwrap_or_default()
    }

    fn reading(&self) -> Reading {
        let (shared, status) = (&self.shared, &self.shared.status);
        let flag = |on: bool| f64::from(u8::from(on));
        let size = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        let holds = self.holds_json().as_array().map_or(0, Vec::len);
        let last = status.last_pass().map_or(0, |at| at.as_second());
        Reading {
            counts: Count::ALL.map(|count| (count, status.get(count))).to_vec(),
            passes: status.passes(),
            requests: self.clients.pace.taken(),
            gauges: Gauge::ALL
                .map(|gauge| {
                    let value = match gauge {
                        Gauge::Listed => {
                            size(usize::try_from(status.get(Count::Listed)).unwrap_or(0))
                        }
                        Gauge::Vms => size(shared.look(|i| i.view.vms.len())),
                        Gauge::Brake => flag(status.braked().is_some()),
                        Gauge::Writing => flag(shared.mute().is_none()),
                        Gauge::Candidates => size(shared.open()),
                        Gauge::Departed => size(shared.all_departed().len()),
                        Gauge::Holds => size(holds),
                        Gauge::MemoryFault => flag(status.memory_fault().is_some()),
                        Gauge::LastPass => {
                            Duration::from_secs(u64::try_from(last).unwrap_or(0)).as_secs_f64()
                        }
                        Gauge::Uptime => shared.clock().as_secs_f64(),
                    };
                    (gauge, value)
                })
                .to_vec(),
        }
    }
}

fn missing(path: &str) -> Response<Body> {
    refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &format!("{path} does not exist"))
}

fn invalid(why: &str) -> Response<Body> {
    refuse(StatusCode::UNPROCESSABLE_ENTITY, "InvalidParameters", why)
}

fn wrong_method(right: &'static str) -> Response<Body> {
    let mut response = refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowedError",
        &format!("only {right} is allowed"),
    );
    response.headers_mut().insert(http::header::ALLOW, http::HeaderValue::from_static(right));
    response
}
