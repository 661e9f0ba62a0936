// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node with its agent, as far as a migration touches them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use migration_core::intent::{End, differ};
use migration_core::machine::{Copy, Node, Snapshot};
use migration_core::protocol::{About, Doing, Observed, Order, Progress, Runs, State, What};
use migration_core::vm_agent::VmAgent;

/// The VM of the stories, its owner, and the two nodes.
pub const VM: Uuid = Uuid::from_u128(0x4000_0000_0000_4000_8000_0000_0000_0001);
pub const OWNER: Uuid = Uuid::from_u128(0x8000_0000_0000_4000_8000_0000_0000_0001);
pub const ONE: Uuid = Uuid::from_u128(0xaaaa_0000_0000_4000_8000_0000_0000_0001);
pub const TWO: Uuid = Uuid::from_u128(0xbbbb_0000_0000_4000_8000_0000_0000_0002);

/// When the VM was created.
pub const BORN: &str = "2015-02-03T04:05:06.789Z";

/// Their image and network.
pub const IMAGE: Uuid = Uuid::from_u128(5);
pub const NETWORK: Uuid = Uuid::from_u128(7);

/// The addresses of a VM: the last byte of its uuid tells them apart. NAPI keeps the first of a network to itself.
pub fn ip(vm: Uuid) -> String {
    format!("10.0.0.{}", 10 + vm.as_bytes()[15])
}

pub fn mac(vm: Uuid) -> String {
    format!("90:b8:d0:00:00:{:02x}", vm.as_bytes()[15])
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Whose copy it has, or will have.
    pub vm: Uuid,
    /// It does not answer.
    pub is_silent: bool,
    /// It takes requests and never answers.
    pub is_stuck: bool,
    /// Its agent answers that it lists snapshots, whenever they are asked for.
    pub is_slow: bool,
    /// Its agent answers that it cannot say what is true of a copy.
    pub is_unwell: bool,
    /// It has no power: whatever its copy is, it does nothing.
    pub is_dead: bool,
    pub held: bool,
    /// Which vm-agent it has; none: ours.
    pub vm_agent: Option<VmAgent>,
    pub copy: Option<Copy>,
    pub alias: String,
    /// Further values of its object.
    pub more: Map<String, Value>,
    /// When its copy was created.
    pub created: String,
    /// What each snapshot holds, and what the datasets hold now.
    pub kept: BTreeMap<u64, u64>,
    pub data: u64,
    /// The highest revision that it received of each migration, and whose copy it has.
    pub received: BTreeMap<Uuid, (u64, End)>,
    /// The nonce of that revision.
    pub nonces: BTreeMap<Uuid, u32>,
    /// The node of the other copy, and whose copy is not to be used again, of each migration.
    pub others: BTreeMap<Uuid, (Option<Uuid>, Option<Uuid>)>,
    /// Migrations that are over.
    pub over: Vec<Uuid>,
    pub orders: Vec<String>,
    /// How often it was observed.
    pub observed: usize,
    /// The next orders of this name fail, or run on: how many, and by how many are left, how far of how many bytes.
    pub fails: Option<Fails>,
    /// How often the copy was booted, and a snapshot was taken.
    pub boots: usize,
    pub taken: usize,
}

#[derive(Clone, Debug)]
pub struct Fails {
    pub name: &'static str,
    pub state: State,
    pub times: u32,
    pub moved: fn(u32) -> (u64, u64),
}

impl Host {
    pub fn with_vm(vm: Uuid, is_running: bool) -> Host {
        let copy = Copy { running: is_running, autoboot: is_running, ..Copy::default() };
        Host {
            vm,
            copy: Some(copy),
            alias: "a".into(),
            created: BORN.into(),
            data: 1,
            ..Host::default()
        }
    }

    /// Returns false for a revision before the highest, or for that one with another nonce.
    pub fn hears(&mut self, about: &About) -> bool {
        let (received, _) = self.received.entry(about.migration).or_insert((0, about.end));
        let known = self.nonces.get(&about.migration).copied();
        let is_other = about.revision == *received && differ(known, about.nonce);
        if about.revision < *received || is_other {
            return false;
        }
        let is_raised = about.revision > *received;
        *received = about.revision;
        match about.nonce {
            Some(nonce) => drop(self.nonces.insert(about.migration, nonce)),
            None if is_raised => drop(self.nonces.remove(&about.migration)),
            None => {}
        }
        true
    }

    /// What it has open.
    pub fn open(&self) -> Value {
        let open = self.received.iter().filter(|(id, _)| !self.over.contains(id));
        let runs = self.copy.as_ref().is_some_and(|copy| copy.running);
        let open = open.map(|(migration, (revision, end))| {
            let (other, instead) = self.others.get(migration).copied().unwrap_or_default();
            json!({
                "migration": migration, "vm": self.vm, "end": end, "revision": revision,
                "nonce": self.nonces.get(migration),
                "power": self.copy.as_ref().and_then(|copy| copy.taken_power),
                "other": other, "instead": instead, "runs": runs,
            })
        });
        open.collect()
    }

    pub fn object(&self, cn: Uuid) -> Option<Map<String, Value>> {
        let copy = self.copy.as_ref()?;
        let state = if copy.running { "running" } else { "stopped" };
        let object = json!({
            "uuid": self.vm, "owner_uuid": OWNER, "brand": "joyent", "alias": self.alias, "state": state,
            "create_timestamp": self.created,
            "indestructible_zoneroot": copy.protection.zoneroot,
            "autoboot": copy.autoboot, "do_not_inventory": copy.hidden, "server_uuid": cn,
            "image_uuid": IMAGE, "ram": 1024, "tags": {},
            "nics": [{
                "mac": mac(self.vm), "network_uuid": NETWORK, "ip": ip(self.vm),
                "netmask": "255.255.255.0", "nic_tag": "external",
            }],
        });
        let more = self.more.iter().map(|(key, value)| (key.clone(), value.clone()));
        Some(object.as_object().cloned()?.into_iter().chain(more).collect())
    }

    /// Returns which vm-agent it has.
    pub fn vm_agent(&self) -> VmAgent {
        self.vm_agent.unwrap_or(VmAgent::Ours)
    }

    pub fn observe(&mut self, cn: Uuid, migration: Uuid) -> Observed {
        self.observed += 1;
        let (held, copy, vm_agent) = (self.held, self.copy.clone(), self.vm_agent());
        let node = Node { held, copy, vm_agent, ..Node::default() };
        let over = self.over.contains(&migration);
        Observed { node, object: self.object(cn), doing: None, over }
    }

    /// Does an order on its own copy. What a stream brings to the other node is done by the world.
    pub fn order(&mut self, order: &Order) -> Doing {
        let name = serde_json::to_value(&order.order).unwrap()["name"].as_str().unwrap().to_owned();
        self.orders.push(name.clone());
        let (other, instead) = self.others.entry(order.about.migration).or_default();
        match &order.order {
            What::Send { to: cn, .. } | What::Receive { from: cn, .. } => *other = Some(*cn),
            What::Show | What::Boot => *instead = order.instead,
            What::Hide | What::Delete => *instead = None,
            _ => {}
        }
        let sends = matches!(
            order.order,
            What::Send { .. } | What::SendImage { .. } | What::Rehearse { .. }
        );
        let done = |state| Doing {
            no_room: false,
            runs: None,
            order: order.order.clone(),
            state,
            progress: sends.then_some(Progress { current: 1000, total: 1000, rate: 0 }),
            warnings: Vec::new(),
        };
        if let Some(fails) = self.fails.as_mut().filter(|fails| fails.name == name) {
            fails.times -= 1;
            let (current, total) = (fails.moved)(fails.times);
            let progress = Progress { current, total, rate: 0 };
            let runs = (fails.state == State::Running)
                .then(|| Runs { command: format!("vmadm {name} x"), since_ms: 0 });
            let doing = Doing { progress: Some(progress), runs, ..done(fails.state.clone()) };
            self.fails.take_if(|fails| fails.times == 0);
            return doing;
        }
        match &order.order {
            What::Hold => self.held = true,
            What::Release => self.held = false,
            What::Over => self.over.push(order.about.migration),
            What::Delete => self.copy = None,
            What::Date { created } => self.created.clone_from(created),
            What::BringOver { update, .. } => {
                let alias = update["alias"].as_str().unwrap_or_default();
                alias.clone_into(&mut self.alias);
            }
            what => {
                let data = &mut self.data;
                let Some(copy) = &mut self.copy else { return done(State::Done) };
                match what {
                    What::Autoboot { on } => {
                        copy.taken_power = Some(copy.power()).filter(|_| !on);
                        copy.autoboot = *on;
                    }
                    What::Stop => {
                        copy.taken_power = Some(copy.power());
                        copy.running = false;
                    }
                    What::Boot => {
                        self.boots += usize::from(!copy.running);
                        (copy.running, copy.taken_power) = (true, None);
                        copy.started_since_snapshot = !copy.snapshots.is_empty();
                        *data += 1000;
                    }
                    What::Hide => copy.hidden = true,
                    What::Show => copy.hidden = false,
                    What::RestoreQuota => copy.quota_lifted = false,
                    What::Forget { keep } => {
                        copy.partial &= keep.is_some();
                        copy.snapshots.retain(|it| Some(it.number) == *keep);
                    }
                    What::Settle => copy.partial = false,
                    What::Protect { of } => copy.protection = *of,
                    What::Send { number, .. }
                        if !copy.snapshots.iter().any(|it| it.number == *number) =>
                    {
                        let guid = *data * 100 + u64::from(*number);
                        copy.snapshots.push(Snapshot { number: *number, guid });
                        self.taken += 1;
                        copy.started_since_snapshot = false;
                        copy.quota_lifted = true;
                        self.kept.insert(guid, *data);
                        if copy.running {
                            *data += 1; // the VM writes on
                        }
                    }
                    _ => {}
                }
            }
        }
        done(State::Done)
    }

    /// Has what the other node sent.
    pub fn receive(&mut self, from: &Host) {
        let (Some(copy), Some(sender)) = (&mut self.copy, &from.copy) else { return };
        let Some(last) = sender.snapshots.last() else { return };
        copy.snapshots = sender.snapshots.clone();
        copy.quota_lifted = true;
        copy.started_since_snapshot = false;
        self.kept = from.kept.clone();
        self.data = from.kept[&last.guid];
    }
}
