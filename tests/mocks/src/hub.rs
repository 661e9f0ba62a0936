// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a follower of vminfod sees, in memory: `/vms` with its tag, `/vms/UUID`, `/events` that begins with all VMs,
//! resumes or is gone, `/sysinfo`. The ring keeps so many events and no more; a listener that falls out of it is cut; a
//! restart begins a new epoch. Requests go through fault rules and a log; a rule for `/events` cuts a new listener.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, ETAG, HeaderName, HeaderValue};
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::{INCOMPLETE, Incomplete, SYNCED, VmObject};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::faults::{Action, Canned, Door, Faults, Listed, Recorder, Service};
use crate::restify::build;
use crate::transport::InProcess;

/// The wall clock of the events: nobody judges by it.
const DATE: &str = "2026-01-05T10:00:00.000Z";

#[derive(Debug)]
struct Ring {
    sysinfo: Value,
    starts: u64,
    seq: u64,
    vms: BTreeMap<String, VmObject>,
    /// What is shown instead of the VMs.
    lie: Option<BTreeMap<String, VmObject>>,
    lines: VecDeque<(u64, Bytes)>,
    most: usize,
    incomplete: BTreeSet<String>,
    /// The zones that were seen to go since the start.
    seen_to_go: BTreeSet<String>,
    /// The zones of which only the XML is there.
    strays: BTreeSet<String>,
    /// The zones whose dataset is there without them.
    datasets: BTreeSet<String>,
    is_up: bool,
}

impl Ring {
    fn shown(&self) -> &BTreeMap<String, VmObject> {
        self.lie.as_ref().unwrap_or(&self.vms)
    }

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
    asked: Arc<(Faults, Recorder)>,
    /// Counts what listeners have to look at.
    news: watch::Sender<u64>,
}

impl Hub {
    /// The hub of an empty node, which keeps `most` events.
    pub fn new(cn: &str, most: usize) -> Hub {
        let ring = Ring {
            sysinfo: json!({"UUID": cn, "Hostname": format!("node-{}", &cn[..8.min(cn.len())])}),
            starts: 1,
            seq: 0,
            vms: BTreeMap::new(),
            lie: None,
            lines: VecDeque::new(),
            most,
            incomplete: BTreeSet::new(),
            seen_to_go: BTreeSet::new(),
            strays: BTreeSet::new(),
            datasets: BTreeSet::new(),
            is_up: true,
        };
        let asked = Arc::default();
        Hub { ring: Arc::new(Mutex::new(ring)), asked, news: watch::Sender::new(0) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, what: impl FnOnce(&mut Ring) -> T) -> T {
        let done = what(&mut self.ring());
        self.news.send_modify(|count| *count += 1);
        done
    }

    /// The fault rules.
    pub fn faults(&self) -> &Faults {
        &self.asked.0
    }

    /// The request log.
    pub fn log(&self) -> &Recorder {
        &self.asked.1
    }

    /// A VM comes or changes: an event.
    pub fn put(&self, vm: VmObject) {
        let name = vm["zonename"].as_str().unwrap_or_default().to_owned();
        self.change(|ring| {
            let old = ring.vms.insert(name.clone(), vm.clone());
            ring.seen_to_go.remove(&name);
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

    /// A VM goes, row and XML: an event.
    pub fn remove(&self, name: &str) {
        self.ring().seen_to_go.insert(name.to_owned());
        self.lose(name);
    }

    /// A VM is there no more, and nothing has announced that its XML went: an event.
    pub fn lose(&self, name: &str) {
        self.change(|ring| {
            if let Some(vm) = ring.vms.remove(name) {
                ring.emit(
                    json!({"type": "delete", "date": DATE, "zonename": name, "uuid": vm["uuid"]}),
                );
            }
        });
    }

    /// The dataset of this VM stays, with its zone or without, or goes.
    pub fn dataset(&self, name: &str, stays: bool) {
        let datasets = &mut self.ring().datasets;
        if stays {
            datasets.insert(name.to_owned())
        } else {
            datasets.remove(name)
        };
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
            ring.seen_to_go.clear();
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

    /// Shows these VMs instead of its own, until it is told `None`. Events are those of its own.
    pub fn lie(&self, vms: Option<BTreeMap<String, VmObject>>) {
        self.ring().lie = vms;
    }

    /// These zones cannot be read; `*`: nobody knows which.
    pub fn incomplete(&self, zones: &[&str]) {
        self.ring().incomplete = zones.iter().map(|&zone| zone.to_owned()).collect();
    }

    /// Of these zones, which cannot be read, only the XML is there.
    pub fn strays(&self, zones: &[&str]) {
        self.incomplete(zones);
        self.ring().strays = zones.iter().map(|&zone| zone.to_owned()).collect();
    }

    /// The node's sysinfo is this.
    pub fn set_sysinfo(&self, sysinfo: Value) {
        self.ring().sysinfo = sysinfo;
    }

    /// The node's sysinfo.
    pub fn sysinfo(&self) -> Value {
        self.ring().sysinfo.clone()
    }

    /// Whether it answers.
    pub fn is_up(&self) -> bool {
        self.ring().is_up
    }

    /// How many listeners wait for events.
    pub fn listeners(&self) -> usize {
        self.news.receiver_count()
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

    fn answer(&self, request: &http::Request<Bytes>) -> http::Response<Bytes> {
        let ring = self.ring();
        let mut headers = Vec::new();
        let zones: Vec<String> = ring.incomplete.iter().cloned().collect();
        let asked = request.uri().query().unwrap_or_default();
        let sync = asked.split('&').find_map(|pair| pair.strip_prefix("sync="));
        let sync = sync.and_then(|sync| HeaderValue::try_from(sync).ok());
        let is_sync = sync.is_some();
        let (status, body) = match request.uri().path() {
            "/vms" => {
                let tag = format!("\"{}-{}\"", ring.epoch(), ring.seq);
                let tag = HeaderValue::try_from(tag).expect("a tag is text");
                headers.push((ETAG, tag));
                let missing = Incomplete::of_zones(zones.iter().cloned()).header();
                headers.extend(missing.map(|it| (HeaderName::from_static(INCOMPLETE), it)));
                let all = ring.shown().values().cloned().map(Value::Object);
                (200, Value::Array(all.collect()))
            }
            "/sysinfo" => (200, json!({"sysinfo": ring.sysinfo, "age_ms": 1})),
            "/status" => (200, json!({"state": "running", "incomplete": zones})),
            path if path.starts_with("/why/") => ring.why(path.trim_start_matches("/why/")),
            path => match path.strip_prefix("/vms/") {
                None => (404, "Unsupported URL Path".into()),
                Some(name) => match ring.shown().get(name) {
                    _ if is_sync && zones.iter().any(|zone| zone == name || zone == "*") => {
                        (503, json!({"code": "ServiceUnavailable", "message": "zoneadm"}))
                    }
                    Some(vm) => (200, Value::Object(vm.clone())),
                    None => (404, format!("VM Not Found: {name}").into()),
                },
            },
        };
        headers.extend(sync.map(|sync| (HeaderName::from_static(SYNCED), sync)));
        let mut response = self.canned(request, (status, Some(&body)));
        response.headers_mut().extend(headers);
        response
    }

    /// This line, and the lines behind an event, as long as they are kept, in this epoch.
    fn lines(
        &self,
        first: Value,
        (epoch, seq): (String, u64),
    ) -> impl futures_util::Stream<Item = Result<Bytes, Error>> + use<> {
        let first = Some(Bytes::from(format!("{first}\n")));
        stream::unfold((self.clone(), epoch, seq, first), async |(hub, epoch, seq, first)| {
            if let Some(line) = first {
                return Some((Ok(line), (hub, epoch, seq, None)));
            }
            // Before the look: news that comes in between wakes it.
            let mut news = hub.news.subscribe();
            loop {
                let next = hub.ring().next(&epoch, seq);
                match next.ok()? {
                    Some((next, line)) => return Some((Ok(line), (hub, epoch, next, None))),
                    None => news.changed().await.ok()?,
                }
            }
        })
    }
}

impl Ring {
    /// What the witnesses of a VM say.
    fn why(&self, name: &str) -> (u16, Value) {
        let (is_here, seen_to_go) =
            (self.shown().contains_key(name), self.seen_to_go.contains(name));
        let dataset = self.datasets.get(name).map(|name| format!("zones/{name}"));
        let is_stray = self.strays.contains(name);
        if !is_here && !is_stray && !seen_to_go && dataset.is_none() {
            return (404, format!("VM Not Found: {name}").into());
        }
        let witnesses = json!({"row": is_here, "index": is_here, "xml": is_here || is_stray,
            "dataset": dataset, "seen_to_go": seen_to_go});
        (200, json!({"uuid": name, "witnesses": witnesses, "sources": {}, "fields": {}}))
    }

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

impl Service for Hub {
    fn parts(&self) -> (&Faults, &Recorder) {
        (self.faults(), self.log())
    }

    const DOORS: &'static [Listed] = &[];

    fn side_door(&self, _: &http::Request<Bytes>, _: &str) -> Door {
        Ok(None)
    }

    /// A text is sent as it is, which is how vminfod says 404.
    fn canned(&self, request: &http::Request<Bytes>, answer: Canned<'_>) -> http::Response<Bytes> {
        let mut response = build(request.method(), answer.0, answer.1);
        if let Some(Value::String(text)) = answer.1 {
            response.headers_mut().remove(CONTENT_LENGTH);
            *response.body_mut() = Bytes::from(text.clone());
        }
        response
    }

    fn route<'a>(
        &'a self,
        request: &'a http::Request<Bytes>,
        _: &'a [Action],
    ) -> BoxFuture<'a, Option<http::Response<Bytes>>> {
        Box::pin(async move { Some(self.answer(request)) })
    }
}

impl Transport for Hub {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            if !self.is_up() {
                return Err(Error::connect(&request.method, request.target(), "nobody listens"));
            }
            InProcess::new(self.clone()).send(request).await
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let target = request.target();
            let is_cut = !self.faults().take("GET", request.url.path(), "").is_empty();
            if is_cut || !self.is_up() {
                return Err(Error::connect(&request.method, target, "nobody listens"));
            }
            self.log().begin(&http::Request::get(&target).body(Bytes::new()).unwrap_or_default());
            let asked: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
            let ring = self.ring();
            let (epoch, newest) = (ring.epoch(), ring.seq);
            let since = asked.get("since").and_then(|since| since.parse::<u64>().ok());
            let first = match since {
                None => {
                    let vms = json!(ring.shown()).to_string();
                    json!({"type": "ready", "date": DATE, "uuid": epoch, "vms": vms, "epoch": epoch, "seq": newest})
                }
                Some(seq) => {
                    json!({"type": "resume", "date": DATE, "epoch": epoch, "seq": seq, "newest": newest})
                }
            };
            let is_kept = since.is_none_or(|since| {
                asked.get("epoch") == Some(&epoch) && since <= newest && ring.behind(since).is_ok()
            });
            let oldest = ring.lines.front().map_or(newest + 1, |(seq, _)| *seq);
            drop(ring);
            let headers = http::HeaderMap::new();
            if is_kept {
                let body = self.lines(first, (epoch, since.unwrap_or(newest))).boxed();
                return Ok(StreamResponse { status: StatusCode::OK, headers, body });
            }
            let body = json!({"code": "Gone", "epoch": epoch, "oldest": oldest, "newest": newest});
            let body = stream::once(async move { Ok(Bytes::from(body.to_string())) }).boxed();
            Ok(StreamResponse { status: StatusCode::GONE, headers, body })
        })
    }
}
