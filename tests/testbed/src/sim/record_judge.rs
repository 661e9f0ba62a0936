// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Decides whether a vm-agent may name a VM to VMAPI, and whether what it wrote was allowed when it
//! took effect, by the true state (M2–M5).

use std::sync::atomic::{AtomicU64, Ordering};

use sdc_clients::http::Request;
use serde_json::{Map, Value};

use super::centre::Centre;
use super::truth::{Life, Truth};
use mocks::vmapi::{Store, kept};

type Record = Map<String, Value>;

/// A record from the future has this time.
pub(super) const FUTURE: &str = "2199-01-01T00:00:00.000Z";

/// The fields of a record that was written whole.
const WHOLE: [&str; 10] = [
    "brand",
    "state",
    "zone_state",
    "zonepath",
    "owner_uuid",
    "nics",
    "customer_metadata",
    "internal_metadata",
    "tags",
    "snapshots",
];

/// Holds one node's vm-agent to the promises.
pub struct RecordJudge {
    cn: String,
    store: Store,
    truth: Truth,
    writes: AtomicU64,
}

/// One VM of a write that is on its way: what VMAPI has of it, and what it will have.
pub(super) struct Sent {
    vm: String,
    before: Option<Record>,
    after: Record,
}

fn text<'a>(record: &'a Record, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The objects that a request writes, by VM.
fn objects(request: &Request) -> Vec<(String, Record)> {
    let Some(body) = &request.body else { return Vec::new() };
    let mut body: Record = serde_json::from_slice(body).unwrap_or_default();
    match request.url.path().strip_prefix("/vms/") {
        Some(vm) => vec![(vm.to_owned(), body)],
        None => {
            let vms = body.remove("vms").and_then(|vms| vms.as_object().cloned());
            let vms = vms.unwrap_or_default().into_iter();
            vms.filter_map(|(vm, object)| Some((vm, object.as_object()?.clone()))).collect()
        }
    }
}

impl RecordJudge {
    /// The judge of the vm-agent on this node.
    pub(super) fn new(centre: &Centre, cn: &str) -> Self {
        let (store, truth) = (centre.vmapi.clone(), centre.truth.clone());
        Self { cn: cn.to_owned(), store, truth, writes: AtomicU64::new(0) }
    }

    /// Records written so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// M4: a request is sent.
    pub(super) fn names(&self, request: &Request) {
        let path = request.url.path().strip_prefix("/vms/").map(str::to_owned);
        let written = objects(request).into_iter().map(|(vm, _)| vm);
        for vm in path.into_iter().chain(written).filter(|vm| self.truth.is_secret(vm)) {
            let what = format!("{} {} names the hidden {vm}", request.method, request.url);
            self.truth.fault("M4", what);
        }
    }

    /// What a request is about to write.
    pub(super) fn sent(&self, request: &Request) -> Vec<Sent> {
        let sent = objects(request).into_iter().map(|(vm, mut object)| {
            object.insert("uuid".to_owned(), vm.clone().into());
            Sent { before: self.store.get(&vm), after: kept(&object), vm }
        });
        sent.collect()
    }

    /// The request has been served: what took effect shows in the data, whatever the answer says.
    pub(super) fn wrote(&self, sent: Vec<Sent>) {
        for Sent { vm, before, after } in sent {
            let stamped = |record: &Record| {
                let mut record = record.clone();
                record.remove("destroyed");
                record
            };
            let now = self.store.get(&vm).map(|now| stamped(&now));
            if now.as_ref() == Some(&stamped(&after)) && before.as_ref().map(&stamped) != now {
                self.judge(&vm, &before.unwrap_or_default(), &after);
            }
        }
    }

    fn judge(&self, vm: &str, before: &Record, after: &Record) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.truth.note(format!("vm-agent PUT {vm}: {}", differing(before, after)));
        let life = self.truth.life(vm);
        let broken = |name: &str, what: &str| self.truth.fault(name, format!("{what}: {vm}"));
        let is_over = text(after, "state") == "destroyed";
        if is_over && matches!(life, Some(Life::On(_) | Life::Planned)) {
            broken("M2", "a VM that lives is shown destroyed");
        }
        // A VM that runs here, or has come here, is taken over (W7).
        let server = text(before, "server_uuid");
        let is_here = life == Some(Life::On(self.cn.clone()));
        if !server.is_empty() && server != self.cn && !is_here {
            broken("M3", "a write for a VM of another node");
        }
        let lacks =
            |key: &&&str| !after.contains_key(**key) && (!is_over || before.contains_key(**key));
        if let Some(lacking) = WHOLE.iter().find(lacks) {
            broken("M5", &format!("a record is written without {lacking}"));
        }
        if matches!(text(after, "state"), "unknown" | "rebooting") {
            broken("M5", "a state is put back that VMAPI made up");
        }
        let newest = text(before, "last_modified");
        if server == self.cn && newest != FUTURE && newest > text(after, "last_modified") {
            broken("M5", "an older object replaces a newer one");
        }
    }
}

/// What a write changed, for whoever replays the seed.
fn differing(before: &Record, after: &Record) -> String {
    let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    let news = keys.filter(|key| before.get(*key) != after.get(*key));
    let news = news.map(|key| match key.as_str() {
        "state" => format!("state {} → {}", text(before, key), text(after, key)),
        key => key.to_owned(),
    });
    news.collect::<Vec<_>>().join(", ")
}
