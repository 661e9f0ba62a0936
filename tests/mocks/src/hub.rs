// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a follower of vminfod sees, in memory: `/vms` with its tag, `/events` that resumes or is gone, `/sysinfo`. The ring
//! keeps so many events and no more; a listener that falls out of it is cut; a restart begins a new epoch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::{INCOMPLETE, Incomplete, VmObject};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The wall clock of the events: nobody judges by it.
const DATE: &str = "2026-01-05T10:00:00.000Z";

#[derive(Debug)]
struct Ring {
    cn: String,
    starts: u64,
    seq: u64,
    vms: BTreeMap<String, VmObject>,
    lines: VecDeque<(u64, Bytes)>,
    most: usize,
    incomplete: BTreeSet<String>,
    is_up: bool,
}

impl Ring {
    fn epoch(&self) -> String {
        format!("{:016x}", self.starts)
    }

    /// The line that a listener gets next; an error if he is cut.
    fn next(&self, epoch: &str, seq: u64) -> Result<Option<(u64, Bytes)>, ()> {
        match self.is_up && self.epoch() == epoch {
            true => self.behind(seq),
            false => Err(()),
        }
    }

    /// The line behind this event; an error if it is no longer kept.
    fn behind(&self, seq: u64) -> Result<Option<(u64, Bytes)>, ()> {
        if seq >= self.seq {
            return Ok(None);
        }
        let found = self.lines.iter().find(|(number, _)| *number == seq + 1);
        found.cloned().map(Some).ok_or(())
    }
}

/// A vminfod in memory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hub {
    ring: Arc<Mutex<Ring>>,
    /// Counts what listeners have to look at.
    news: watch::Sender<u64>,
}

impl Hub {
    /// The hub of an empty node, which keeps `most` events.
    pub fn new(cn: &str, most: usize) -> Hub {
        let ring = Ring {
            cn: cn.to_owned(),
            starts: 1,
            seq: 0,
            vms: BTreeMap::new(),
            lines: VecDeque::new(),
            most,
            incomplete: BTreeSet::new(),
            is_up: true,
        };
        Hub { ring: Arc::new(Mutex::new(ring)), news: watch::Sender::new(0) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, what: impl FnOnce(&mut Ring) -> T) -> T {
        let done = what(&mut self.ring());
        self.news.send_modify(|count| *count += 1);
        done
    }

    /// A VM comes or changes: an event.
    pub fn put(&self, vm: VmObject) {
        let name = vm["zonename"].as_str().unwrap_or_default().to_owned();
        self.change(|ring| {
            let old = ring.vms.insert(name.clone(), vm.clone());
            let changes: Vec<Value> = old.iter().flatten().filter_map(|(key, old)| {
                let new = vm.get(key)?;
                (new != old).then(|| json!({"prettyPath": key, "path": [key], "action": "changed",
                    "oldValue": old, "newValue": new}))
            }).collect();
            let mut line = json!({"type": "create", "date": DATE, "zonename": name, "uuid": vm["uuid"], "vm": vm});
            if old.is_some() {
                line["type"] = "modify".into();
                line["changes"] = changes.into();
            }
            ring.emit(line);
        });
    }

    /// A VM goes: an event.
    pub fn remove(&self, name: &str) {
        self.change(|ring| {
            if let Some(vm) = ring.vms.remove(name) {
                ring.emit(
                    json!({"type": "delete", "date": DATE, "zonename": name, "uuid": vm["uuid"]}),
                );
            }
        });
    }

    /// Changes the VMs without an event, as while vminfod is down.
    pub fn silently(&self, change: impl FnOnce(&mut BTreeMap<String, VmObject>)) {
        change(&mut self.ring().vms);
    }

    /// vminfod starts anew: another epoch, numbers from 1, nothing to resume.
    pub fn restart(&self) {
        self.change(|ring| {
            ring.starts += 1;
            (ring.seq, ring.is_up) = (0, true);
            ring.lines.clear();
        });
    }

    /// vminfod stops to answer, until [`Hub::restart`].
    pub fn stop(&self) {
        self.change(|ring| ring.is_up = false);
    }

    /// The ring loses all its events.
    pub fn forget(&self) {
        self.change(|ring| ring.lines.clear());
    }

    /// These zones cannot be read.
    pub fn incomplete(&self, zones: &[&str]) {
        self.ring().incomplete = zones.iter().map(|&zone| zone.to_owned()).collect();
    }

    /// The VMs.
    pub fn vms(&self) -> BTreeMap<String, VmObject> {
        self.ring().vms.clone()
    }

    /// The epoch, and the last event.
    pub fn position(&self) -> (String, u64) {
        let ring = self.ring();
        (ring.epoch(), ring.seq)
    }

    fn answer(&self, request: &Request) -> (StatusCode, HeaderMap, Bytes) {
        let ring = self.ring();
        let mut headers = HeaderMap::new();
        let body = match request.url.path() {
            "/vms" => {
                let tag = format!("\"{}-{}\"", ring.epoch(), ring.seq);
                headers
                    .insert(http::header::ETAG, HeaderValue::try_from(tag).expect("a tag is text"));
                let missing = Incomplete::of_zones(ring.incomplete.iter().cloned());
                if let Some(value) = missing.header() {
                    headers.insert(INCOMPLETE, value);
                }
                Value::Array(ring.vms.values().cloned().map(Value::Object).collect())
            }
            "/sysinfo" => {
                json!({"sysinfo": {"UUID": ring.cn, "Hostname": format!("node-{}", &ring.cn[..8.min(ring.cn.len())])}})
            }
            "/status" => json!({"state": "running", "incomplete": ring.incomplete}),
            _ => {
                return (
                    StatusCode::NOT_FOUND,
                    headers,
                    Bytes::from_static(b"Unsupported URL Path"),
                );
            }
        };
        (StatusCode::OK, headers, body.to_string().into())
    }

    /// The lines behind an event, as long as they are kept, in this epoch.
    fn lines(
        &self,
        epoch: String,
        seq: u64,
    ) -> impl futures_util::Stream<Item = Result<Bytes, Error>> + use<> {
        stream::unfold((self.clone(), epoch, seq, true), async |(hub, epoch, seq, is_first)| {
            if is_first {
                let newest = hub.ring().seq;
                let line = json!({"type": "resume", "date": DATE, "epoch": epoch, "seq": seq, "newest": newest});
                return Some((Ok(Bytes::from(format!("{line}\n"))), (hub, epoch, seq, false)));
            }
            // Before the look: news that comes in between wakes it.
            let mut news = hub.news.subscribe();
            loop {
                let next = hub.ring().next(&epoch, seq);
                match next.ok()? {
                    Some((next, line)) => return Some((Ok(line), (hub, epoch, next, false))),
                    None => news.changed().await.ok()?,
                }
            }
        })
    }
}

impl Ring {
    fn emit(&mut self, mut line: Value) {
        self.seq += 1;
        line["seq"] = self.seq.into();
        line["epoch"] = self.epoch().into();
        self.lines.push_back((self.seq, Bytes::from(format!("{line}\n"))));
        while self.lines.len() > self.most {
            self.lines.pop_front();
        }
    }
}

impl Transport for Hub {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            if !self.ring().is_up {
                return Err(Error::connect(&Method::GET, request.target(), "nobody listens"));
            }
            let (status, headers, body) = self.answer(&request);
            Ok(Response { status, headers, body })
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            if !self.ring().is_up {
                return Err(Error::connect(&Method::GET, request.target(), "nobody listens"));
            }
            let asked: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
            let ring = self.ring();
            let since = asked.get("since").and_then(|since| since.parse::<u64>().ok());
            let kept = since.filter(|since| {
                asked.get("epoch") == Some(&ring.epoch())
                    && *since <= ring.seq
                    && ring.behind(*since).is_ok()
            });
            let (epoch, newest) = (ring.epoch(), ring.seq);
            let oldest = ring.lines.front().map_or(newest + 1, |(seq, _)| *seq);
            drop(ring);
            let Some(since) = kept else {
                let body =
                    json!({"code": "Gone", "epoch": epoch, "oldest": oldest, "newest": newest});
                let body = stream::once(async move { Ok(Bytes::from(body.to_string())) }).boxed();
                return Ok(StreamResponse {
                    status: StatusCode::GONE,
                    headers: HeaderMap::new(),
                    body,
                });
            };
            let body = self.lines(epoch, since).boxed();
            Ok(StreamResponse { status: StatusCode::OK, headers: HeaderMap::new(), body })
        })
    }
}
