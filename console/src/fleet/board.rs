// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What browsers are shown: a line of JSON for each node and each VM, and each line that changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sdc_clients::fleet::{Beat, FleetVm, NOT_HEARD};
use sdc_clients::vminfod::VmFields as _;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use tokio::time::Instant;

/// Lines that a browser may be behind; one that is farther behind begins anew.
const BEHIND: usize = 16_384;
/// What is shown of a VM in a list.
const SHOWN: [&str; 12] = [
    "uuid",
    "alias",
    "hostname",
    "state",
    "brand",
    "ram",
    "max_physical_memory",
    "quota",
    "owner_uuid",
    "create_timestamp",
    "last_modified",
    "do_not_inventory",
];

/// The lines, and those who read them.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    news: broadcast::Sender<Bytes>,
    /// See [`super::Config::node_page`].
    node_page: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<String, (Beat, Instant)>,
    vms: BTreeMap<(String, String), (Arc<FleetVm>, Bytes)>,
    /// The VMs were read whole once.
    is_complete: bool,
    /// Why the feed is not followed.
    lost: Option<String>,
}

impl Board {
    pub(super) fn new(node_page: Option<String>) -> Board {
        Board { state: Mutex::default(), news: broadcast::Sender::new(BEHIND), node_page }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all lines as they are now, and those that follow.
    pub(super) fn listen(&self) -> (Vec<Bytes>, broadcast::Receiver<Bytes>) {
        let state = self.lock();
        let mut lines = vec![feed(state.lost.as_deref())];
        lines.extend(state.nodes.values().map(|(beat, heard)| self.node(beat, heard.elapsed())));
        lines.extend(state.vms.values().map(|(_, line)| line.clone()));
        if state.is_complete {
            lines.push(line(&json!({"type": "ready"})));
        }
        (lines, self.news.subscribe())
    }

    /// How many nodes and VMs are known, and why the feed is not followed.
    pub(super) fn sums(&self) -> (usize, usize, Option<String>) {
        let state = self.lock();
        (state.nodes.len(), state.vms.len(), state.lost.clone())
    }

    /// Returns the copies of a VM, whole.
    pub(super) fn vm(&self, uuid: &str) -> Value {
        let state = self.lock();
        let found = state.vms.values().filter(|(vm, _)| vm.uuid == uuid);
        let copy = |(vm, _): &(Arc<FleetVm>, Bytes)| json!({"cn": vm.cn, "position": vm.at.to_string(), "vm": vm.object});
        found.map(copy).collect()
    }

    /// A heartbeat came.
    pub(super) fn beat(&self, beat: Beat) {
        let mut state = self.lock();
        let (now, age) = (Instant::now(), beat.age);
        self.tell(self.node(&beat, age));
        let heard = now.checked_sub(age).unwrap_or(now);
        state.nodes.insert(beat.node.cn_uuid.clone(), (beat, heard));
    }

    /// An operator has removed a node.
    pub(super) fn forget(&self, cn: &str) {
        if self.lock().nodes.remove(cn).is_some() {
            self.tell(line(&json!({"type": "forgotten", "cn": cn})));
        }
    }

    /// A VM is so now.
    pub(super) fn put(&self, vm: &Arc<FleetVm>) {
        let mut state = self.lock();
        let told = shown(vm);
        let key = (vm.cn.clone(), vm.uuid.clone());
        let before = state.vms.insert(key, (Arc::clone(vm), told.clone()));
        if before.is_none_or(|(_, before)| before != told) {
            self.tell(told);
        }
    }

    /// A VM is gone from its node.
    pub(super) fn remove(&self, cn: &str, uuid: &str) {
        let mut state = self.lock();
        if state.vms.remove(&(cn.to_owned(), uuid.to_owned())).is_some() {
            self.tell(line(&json!({"type": "gone", "cn": cn, "uuid": uuid})));
        }
    }

    /// These are all VMs there are.
    pub(super) fn complete<'a>(&self, all: impl Iterator<Item = &'a Arc<FleetVm>>) {
        let known: Vec<_> = self.lock().vms.keys().cloned().collect();
        let mut kept = std::collections::BTreeSet::new();
        for vm in all {
            kept.insert((vm.cn.clone(), vm.uuid.clone()));
            self.put(vm);
        }
        for (cn, uuid) in known.iter().filter(|key| !kept.contains(key)) {
            self.remove(cn, uuid);
        }
        let mut state = self.lock();
        state.is_complete = true;
        self.tell(line(&json!({"type": "ready"})));
    }

    /// The feed is followed, or why it is not.
    pub(super) fn lost(&self, why: Option<String>) {
        let mut state = self.lock();
        if state.lost != why {
            self.tell(feed(why.as_deref()));
            state.lost = why;
        }
    }

    /// What happened before is not completely known: on this node, or anywhere.
    pub(super) fn hole(&self, cn: Option<&str>) {
        self.tell(line(&json!({"type": "hole", "cn": cn})));
    }

    /// The connection is alive.
    pub(super) fn tick(&self) {
        self.tell(line(&json!({"type": "tick"})));
    }

    /// Who reads, reads it. To be called with the state held, so that a browser that begins has it once.
    fn tell(&self, line: Bytes) {
        let _nobody_reads = self.news.send(line);
    }

    fn node(&self, beat: &Beat, age: Duration) -> Bytes {
        let node = &beat.node;
        let name = node.name();
        let needs = node.needs.iter().map(|need| {
            json!({"program": need.program, "what": need.what.name(), "text": need.text,
                "command": need.command().to_string()})
        });
        let page = self.node_page.as_ref().map(|page| page.replace("{name}", name));
        let page = page.map(|page| page.replace("{uuid}", &node.cn_uuid));
        line(&json!({
            "type": "node", "cn": node.cn_uuid, "name": name, "version": node.claim.version,
            "machine": node.claim.machine, "rival": node.rival.as_ref().map(|rival| &rival.hostname),
            "every_s": node.every_s, "age_ms": u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            "vms": node.vms, "waits": node.waits, "programs": node.programs,
            "position": node.position.as_ref().map(ToString::to_string),
            "needs": needs.collect::<Vec<_>>(), "page": page, "not_heard": NOT_HEARD,
        }))
    }
}

fn feed(lost: Option<&str>) -> Bytes {
    line(&json!({"type": "feed", "lost": lost, "command": "sdc-fleet streams"}))
}

/// What a list shows of a VM.
fn shown(vm: &FleetVm) -> Bytes {
    let object = &vm.object;
    let fields =
        SHOWN.iter().filter_map(|name| Some(((*name).to_owned(), object.get(*name)?.clone())));
    let mut fields: Map<String, Value> = fields.collect();
    fields.insert("uuid".to_owned(), json!(vm.uuid));
    let nics = object.nics().into_iter().flatten();
    let nics = nics.map(|nic| json!({"mac": nic.get("mac"), "ip": nic.ip()}));
    fields.insert("nics".to_owned(), nics.collect());
    line(&json!({"type": "vm", "cn": vm.cn, "vm": fields}))
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sdc_clients::fleet::Position;

    use super::*;

    fn vm(uuid: &str, state: &str, event: u64) -> Arc<FleetVm> {
        let object = json!({"alias": "web", "state": state, "customer_metadata": {"a": "secret"}});
        Arc::new(FleetVm {
            cn: "c1".into(),
            uuid: uuid.into(),
            object: object.as_object().unwrap().clone(),
            at: Position { epoch: "e".into(), seq: event },
            seq: event,
        })
    }

    fn types(lines: impl IntoIterator<Item = Bytes>) -> Vec<String> {
        let read = |line: Bytes| serde_json::from_slice::<Value>(&line).unwrap();
        lines.into_iter().map(|line| read(line)["type"].as_str().unwrap().to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_reads_all_that_is_known_and_then_each_change_once() {
        let board = Board::new(None);
        board.complete([vm("u1", "running", 1), vm("u2", "running", 1)].iter());
        let (all, mut news) = board.listen();
        assert_eq!(types(all.clone()), ["feed", "vm", "vm", "ready"]);
        assert!(!String::from_utf8_lossy(&all[1]).contains("secret"));
        board.put(&vm("u1", "running", 2)); // nothing that a list shows
        board.put(&vm("u1", "stopped", 3));
        board.lost(Some("away".into()));
        board.lost(Some("away".into()));
        board.complete([vm("u2", "running", 1)].iter());
        let mut told = Vec::new();
        while let Ok(line) = news.try_recv() {
            told.push(line);
        }
        assert_eq!(types(told), ["vm", "feed", "gone", "ready"]);
        assert_eq!(board.sums(), (0, 1, Some("away".to_owned())));
        assert_eq!(board.vm("u2")[0]["cn"], "c1");
    }
}
