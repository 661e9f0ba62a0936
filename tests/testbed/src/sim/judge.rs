// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Decides whether a write was allowed when it took effect, by the true state.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdc_clients::MacAddr;
use serde_json::Value;
use tokio::time::Instant;

use super::centre::Centre;
use super::truth::{Life, Truth};
use super::wire::NodeWire;
use mocks::napi::Store;
use simnode::Node;
use simnode::xml::Element;

/// A record that is still being provisioned may go after this, when VMAPI gave its VM up.
pub const PROVISIONING: Duration = Duration::from_secs(7200);
/// So many NICs may go within an hour on this node's word alone, or a tenth of what it has.
const FEW: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);
/// An update may be under way this long after its VM has gone: while vminfod has not noticed.
const UNDER_WAY: Duration = Duration::from_secs(400);

/// Holds the writes of one node's agent to the promises.
pub struct Judge {
    /// The agent's node.
    cn: String,
    node: Node,
    store: Store,
    vms: mocks::vmapi::Store,
    truth: Truth,
    wire: NodeWire,
    second_look: Duration,
    told: Mutex<Told>,
}

/// What the agent did so far.
#[derive(Default)]
struct Told {
    /// When a NIC was first in a list of this agent.
    listed: HashMap<String, Instant>,
    /// Writes that took effect.
    writes: u64,
    /// Deletes of the last hour that VMAPI had not confirmed.
    unconfirmed: VecDeque<Instant>,
}

impl Judge {
    /// The judge of the agent on this node; a leaked NIC is looked at twice, so far apart.
    pub fn new(node: &Node, centre: &Centre, wire: &NodeWire, second_look: Duration) -> Self {
        Self {
            cn: node.cn_uuid().to_owned(),
            node: node.clone(),
            store: centre.napi.clone(),
            vms: centre.vmapi.clone(),
            truth: centre.truth.clone(),
            wire: wire.clone(),
            second_look,
            told: Mutex::default(),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent's node.
    pub(super) fn cn(&self) -> &str {
        &self.cn
    }

    /// Writes that took effect so far.
    pub fn writes(&self) -> u64 {
        self.told().writes
    }

    /// The agent starts anew and knows nothing.
    pub fn restart(&self) {
        self.told().listed.clear();
    }

    /// The agent was given this list.
    pub(super) fn note_list(&self, body: &[u8]) {
        let rows: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let now = Instant::now();
        let mut told = self.told();
        for mac in rows.as_array().into_iter().flatten().filter_map(|row| row["mac"].as_str()) {
            told.listed.entry(mac.replace(':', "")).or_insert(now);
        }
    }

    /// A delete took effect.
    pub(super) fn delete(&self, mac: &str, nic: &Value, guarded: bool) {
        self.told().writes += 1;
        let vm = owner(nic);
        let vm = vm.as_str();
        let life = self.truth.life(vm);
        self.truth.note(format!("DELETE {mac} of {vm}"));
        self.truth.writes(&self.cn, "a NIC");
        let broken =
            |name: &str, what: &str| self.truth.fault(name, format!("{what}: {mac} of {vm}"));
        if !guarded {
            broken("I3", "DELETE without If-Match");
        }
        match &life {
            // A NIC that was taken from a VM may go, guarded as any other; one that is in use never.
            Some(Life::On(cn)) if *cn == self.cn && !self.uses(vm, mac) => {}
            Some(Life::On(cn)) if *cn == self.cn => broken("I1", "DELETE for a VM of this node"),
            Some(Life::On(_)) => broken("I12", "DELETE for a VM of another node"),
            Some(Life::Planned) => broken("I12", "DELETE for a VM that is being provisioned"),
            Some(Life::Gone(..)) | None => {}
        }
        if self.is_in_use(mac) && !matches!(life, Some(Life::On(_))) {
            broken("I1", "DELETE of an address that a VM of this node has");
        }
        if nic["belongs_to_type"] != "zone" || nic["cn_uuid"].as_str() != Some(self.cn.as_str()) {
            broken("I2", "DELETE of a NIC that is not this node's");
        }
        let is_final = matches!(nic["state"].as_str(), Some("running" | "stopped"));
        if !is_final && age(&self.store, nic) < PROVISIONING {
            broken("I7", "DELETE in a state that is not final");
        }
        // A VM that this node never had was found in lists alone.
        if life.is_none() {
            let listed = self.told().listed.get(&mac.replace(':', "")).copied();
            self.judge_looks(listed, broken);
        }
        self.judge_number(vm);
    }

    /// I4, I5: the list first, then the views that it is judged by, at least two, and apart.
    fn judge_looks(&self, listed: Option<Instant>, broken: impl Fn(&str, &str)) {
        let Some(listed) = listed else { return broken("I5", "DELETE without a list") };
        let views = self.wire.views_since(listed);
        let (Some(first), Some(last)) = (views.first(), views.last()) else {
            return broken("I4", "DELETE by a view that is older than the list");
        };
        if listed.elapsed() < self.second_look || *last - *first < self.second_look {
            broken("I5", "DELETE at first sight");
        }
    }

    /// I6: beyond the allowance of an hour nothing goes that VMAPI has not confirmed.
    fn judge_number(&self, vm: &str) {
        let known = self.vms.get(vm);
        let state = known.as_ref().and_then(|vm| vm.get("state")).and_then(Value::as_str);
        if matches!(state, Some("destroyed" | "failed")) || self.truth.life(vm).is_some() {
            return;
        }
        let ours = |nic: &&Value| nic["cn_uuid"] == self.cn.as_str();
        let listed = self.store.nics().iter().filter(ours).count() + 1;
        let mut told = self.told();
        let now = Instant::now();
        told.unconfirmed.retain(|at| now - *at < HOUR);
        told.unconfirmed.push_back(now);
        let count = told.unconfirmed.len();
        drop(told);
        if count > (listed / 10).max(FEW) {
            self.truth.fault("I6", format!("{count} deletes within an hour, {listed} NICs"));
        }
    }

    /// Is this a record without a node, of a VM that VMAPI says was destroyed on this one? RFD 58
    /// wants it reaped, so it is claimed first.
    fn adopts(&self, vm: &str, before: &Value) -> bool {
        let bare = before["cn_uuid"].as_str().is_none_or(str::is_empty);
        let here = |known: &serde_json::Map<String, Value>| {
            let says = |key: &str| known.get(key).and_then(Value::as_str);
            says("server_uuid") == Some(self.cn.as_str())
                && matches!(says("state"), Some("destroyed" | "failed"))
        };
        bare && self.vms.get(vm).as_ref().is_some_and(here)
    }

    /// Returns true if the node takes what the booter left for it: the record of one of its own addresses.
    fn claims(&self, before: &Value, after: &Value) -> bool {
        let sysinfo = std::fs::read_to_string(self.node.root().join("tmp/.sysinfo.json"));
        let has = |mac: &str| sysinfo.is_ok_and(|text| text.to_lowercase().contains(mac));
        before["belongs_to_type"] == "other"
            && after["belongs_to_type"] == "server"
            && after["belongs_to_uuid"] == self.cn.as_str()
            && before["mac"].as_str().is_some_and(has)
    }

    /// Returns true if the VM's configuration has this NIC.
    fn uses(&self, vm: &str, mac: &str) -> bool {
        self.node.zone_config(vm).map_or(true, |xml| has_mac(&xml, mac))
    }

    /// Returns true if any VM of the node has this NIC.
    pub(super) fn is_in_use(&self, mac: &str) -> bool {
        let has = |vm: &str| self.node.zone_config(vm).is_ok_and(|xml| has_mac(&xml, mac));
        self.truth.is_hidden_use(mac) || self.truth.on(&self.cn).iter().any(|vm| has(vm))
    }

    /// An update took effect.
    pub(super) fn update(&self, mac: &str, before: &Value, after: &Value) {
        self.told().writes += 1;
        self.truth.writes(&self.cn, "a NIC");
        let vm = owner(before);
        let vm = vm.as_str();
        let life = self.truth.life(vm);
        let plain = |nic: &Value| {
            let mut nic = nic.clone();
            if let Some(fields) = nic.as_object_mut() {
                fields.retain(|key, _| key != "modified_timestamp" && key != "etag");
            }
            nic
        };
        self.truth.note(format!("PUT {mac} of {vm}: {}", differing(before, after)));
        let broken =
            |name: &str, what: &str| self.truth.fault(name, format!("{what}: {mac} of {vm}"));
        if plain(before) == plain(after) {
            broken("I9", "PUT that changes nothing");
        }
        if before["cn_uuid"].as_str().is_some_and(|cn| cn != self.cn) {
            broken("I2", "PUT to a NIC of another node");
        }
        let server = before["belongs_to_type"] == "server" && vm == self.cn;
        let server = server || self.claims(before, after);
        let ours = match life {
            Some(Life::On(cn)) => cn == self.cn,
            Some(Life::Gone(at, cn)) => cn == self.cn && at.elapsed() < UNDER_WAY,
            Some(Life::Planned) | None => false,
        };
        if !server && !ours && !self.adopts(vm, before) {
            broken("I2", "PUT for a VM that is not on this node");
        }
        if let (true, false, Ok(zone)) = (self.truth.is_quiet(), server, self.node.zone(vm)) {
            let lives = if zone.state.is_active() { "running" } else { "stopped" };
            if after["state"] != lives || after["cn_uuid"] != self.cn.as_str() {
                broken("I11", "the record is not what the node says, though nothing changes");
            }
        }
    }
}

/// The VM of a record: a uuid is a value, whatever its letters.
pub(super) fn owner(nic: &Value) -> String {
    nic["belongs_to_uuid"].as_str().unwrap_or_default().to_lowercase()
}

fn has_mac(xml: &Element, mac: &str) -> bool {
    // A configuration may have them without leading zeros.
    let read = |mac: &str| mac.parse::<MacAddr>().ok();
    xml.all("network")
        .filter_map(|nic| read(nic.get("mac-addr")?))
        .any(|own| Some(own) == read(mac))
}

/// How long ago a record was written, by NAPI's clock.
pub fn age(napi: &Store, nic: &Value) -> Duration {
    let at = nic["modified_timestamp"].as_str().and_then(|at| at.parse().ok());
    let at = at.map_or(i64::MAX, |at: jiff::Timestamp| at.as_millisecond());
    Duration::from_millis(u64::try_from(napi.now_ms().saturating_sub(at)).unwrap_or(0))
}

/// What an update changed, for whoever replays the seed.
fn differing(before: &Value, after: &Value) -> String {
    let fields = after.as_object().into_iter().flatten();
    let news = fields.filter(|(key, value)| before[key.as_str()] != **value);
    let news = news.filter(|(key, _)| !matches!(key.as_str(), "modified_timestamp" | "etag"));
    news.map(|(key, value)| format!("{key} {} → {value}", before[key.as_str()]))
        .collect::<Vec<_>>()
        .join(", ")
}
