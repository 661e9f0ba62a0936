// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known before a begin, and the record that it makes.
//!
//! A migration that fails after hours of syncs costs more than a question before it. So both nodes and all services
//! are asked first, and all obstacles to a begin are reported at once, not one after the other.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::action_params::ActionParams;
use super::node_reports::NodeReport;
use super::refused::Refused;
use super::state::Service;
use migration_core::checks::{self, Findings, Node, Situation};
use migration_core::estimate::Basis;
use migration_core::permit::{Caller, Subject};
use migration_core::record::{Phase, Record, RecordFields, State};
use migration_core::time::Time;

/// What a switch takes besides its last sync, and what passes between two syncs.
pub const SWITCH_SECONDS: u64 = 30;
const SYNC_SECONDS: u64 = 60;

/// A VM as VMAPI has it, with what every action needs.
#[derive(Clone, Debug)]
pub struct Vm {
    pub uuid: Uuid,
    /// The whole record.
    pub object: Map<String, Value>,
    /// The node that VMAPI names.
    pub server: Option<Uuid>,
}

impl Vm {
    /// Returns what a permission depends on.
    pub fn subject(&self) -> Subject<'_> {
        let allowed = self.object.get("internal_metadata");
        let allowed = allowed.and_then(|it| it.get("user_migration_allowed"));
        Subject { owner: self.owner(), allowed }
    }

    /// Returns its owner.
    pub fn owner(&self) -> Uuid {
        self.text("owner_uuid").and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Returns a field that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.object.get(name).and_then(Value::as_str)
    }

    /// Refuses a VM that is being made.
    pub fn is_allocated(&self) -> Result<(), Refused> {
        if self.text("state") != Some("provisioning") {
            return Ok(());
        }
        let why = checks::Obstacle::Unallocated;
        Err(Refused::coded(why.status(), why.code(), &why.to_string()))
    }

    fn tag(&self, name: &str) -> Option<&str> {
        self.object.get("tags").and_then(|tags| tags[name].as_str())
    }

    fn list(&self, name: &str) -> &[Value] {
        self.object.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Which services a check asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// No other service: what an action is refused for anyway.
    Nothing,
    /// Services and agents, for an estimate: many of them share a report of a node, a few seconds old.
    Shared,
    /// Services and agents, now.
    Now,
}

impl Service {
    /// Returns a VM.
    pub async fn vm(&self, uuid: Uuid) -> Result<Vm, Refused> {
        let object = self.peers.vmapi.record(&uuid.to_string()).await?;
        let server = object.get("server_uuid").and_then(Value::as_str);
        Ok(Vm { uuid, server: server.and_then(|text| text.parse().ok()), object })
    }

    /// Returns all obstacles to a begin.
    pub async fn check(
        &self,
        vm: &Vm,
        target: Option<Uuid>,
        asks: Asks,
    ) -> Result<Findings, Refused> {
        let is_same = target.is_some() && target == vm.server;
        let mut known = known(vm);
        if asks != Asks::Nothing && !known.lacks_image {
            known.has_image = self.peers.image(&vm.object).await?.is_some();
            if checks::object::image(&vm.object).is_some() {
                self.manifest(&vm.object).await.map_err(Refused::from)?;
            }
            self.peers.package(&vm.object).await?;
            self.ask_nodes(vm, target, asks, &mut known).await;
        }
        Ok(checks::check(&known, is_same, self.clock.now()))
    }

    /// Asks the agents and CNAPI what the nodes are. What does not answer is not known.
    async fn ask_nodes(&self, vm: &Vm, target: Option<Uuid>, asks: Asks, known: &mut Situation) {
        let Some(source) = vm.server else { return };
        known.object = self.agents.object(source, vm.uuid).await.ok();
        // What the node shows is newer than VMAPI's record, and whole.
        let object = known.object.clone().unwrap_or_else(|| vm.object.clone());
        let vm = &Vm { object, ..vm.clone() };
        let (used, from, to) = tokio::join!(
            self.agents.size(source, vm.uuid),
            Box::pin(self.node(source, vm, false, asks)),
            async {
                match target {
                    Some(target) => Some(Box::pin(self.node(target, vm, true, asks)).await),
                    None => None,
                }
            },
        );
        known.used_bytes = used.map_or(0, |size| size.bytes);
        (known.source, known.target) = (Some(from), to);
    }

    /// Returns what is known of a node.
    pub async fn node(&self, cn: Uuid, vm: &Vm, is_target: bool, asks: Asks) -> Node {
        let uuid = cn.to_string();
        let report = async {
            match asks {
                Asks::Now => NodeReport::of(self.agents.node(cn).await),
                Asks::Nothing | Asks::Shared => self.agents.recent_node(cn).await,
            }
        };
        let (report, server) = tokio::join!(report, self.peers.cnapi.get_server(&uuid));
        let now = self.clock.now();
        let is_unproved = matches!(report, NodeReport::Unproved);
        let lacks_address = matches!(report, NodeReport::NoAddress);
        let (agent, server) = (report.node(), server.ok());
        let tags: Vec<&str> = server.as_ref().map(|server| server.nic_tags()).unwrap_or_default();
        let needed = vm.list("nics").iter().filter_map(|nic| nic["nic_tag"].as_str());
        let missing =
            needed.filter_map(|tag| tag.split('/').next()).filter(|tag| !tags.contains(tag));
        let has_copy = is_target && agent.is_some_and(|agent| agent.vms.contains(&vm.uuid));
        let in_the_way = match is_target && !has_copy && agent.is_some() && asks == Asks::Now {
            true => self.agents.in_the_way(cn, vm.uuid).await.unwrap_or_default(),
            false => Vec::new(),
        };
        let reboot = server
            .as_ref()
            .and_then(|server| server.other.get("next_reboot")?.as_str().map(Time::parse));
        Node {
            agent_version: agent.map(|agent| agent.version),
            is_unproved,
            is_revoked: self.is_revoked(cn),
            lacks_address,
            cpu: agent.and_then(|agent| agent.cpu.clone()),
            platform: agent.and_then(|agent| agent.platform.clone()),
            clock_ms: agent.map(|agent| now.millis() - agent.now_ms),
            can_resume: agent.is_some_and(|agent| agent.can_resume),
            pool: agent.and_then(|agent| agent.pool.clone()),
            lacks_limits: has_limits(&vm.object)
                && agent.is_some_and(|agent| agent.has_limits == Some(false)),
            encrypted: agent.and_then(|agent| agent.encrypted),
            free_bytes: agent.and_then(|agent| agent.free_bytes),
            missing_nic_tags: missing.map(str::to_owned).collect(),
            next_reboot: reboot.flatten(),
            vm_agent: agent.map(|agent| agent.vm_agent).unwrap_or_default(),
            has_copy,
            in_the_way,
        }
    }

    /// Returns what an estimate is made from, and the bytes that the VM uses.
    pub async fn basis(&self, vm: &Vm) -> Result<(Basis, u64), Refused> {
        let kept = self.records.of_vm(vm.uuid).await?;
        let record = kept.map(|kept| kept.record);
        let source = record.as_ref().map(|record| record.source_server_uuid).or(vm.server);
        let source = source.ok_or_else(|| Refused::precondition("Invalid vm instance"))?;
        let used = self.agents.size(source, vm.uuid).await.map_err(|error| {
            Refused::internal(&format!("Migration estimate failed: {}", error.message()))
        })?;
        let settings = self.settings.read().await?;
        let event = self.records.news.event(vm.uuid).await?.map(|latest| latest.event);
        let left = event.and_then(|event| {
            let count = |name: &str| event[name].as_u64();
            Some(count("total_progress")?.saturating_sub(count("current_progress")?))
        });
        let increment = record.as_ref().filter(|record| record.num_sync_phases > 1);
        let last = increment.and_then(|record| record.last_sync_size);
        let basis = Basis {
            bytes: left.or(last).unwrap_or(used.bytes),
            syncs: record.as_ref().map_or(0, |record| record.num_sync_phases),
            send_rate: settings.bytes_per_second(source),
            write_rate: last.unwrap_or(0) / SYNC_SECONDS,
            switch_seconds: SWITCH_SECONDS,
            is_stopped: vm.text("state") == Some("stopped"),
        };
        Ok((basis, used.bytes))
    }

    /// Returns a new record.
    pub fn new_record(
        &self,
        vm: &Vm,
        asked: &ActionParams,
        target: Option<Uuid>,
        now: Time,
    ) -> Record {
        let account = match asked.caller {
            Caller::Account(account) => account,
            Caller::Operator => self.operators,
        };
        Record::new(RecordFields {
            action: Some("begin".into()),
            automatic: asked.automatic,
            created_timestamp: now,
            id: Uuid::new_v4(),
            num_sync_phases: 0,
            owner_uuid: Some(vm.owner()),
            account_uuid: Some(account),
            phase: Phase::Begin,
            progress_history: Vec::new(),
            source_server_uuid: vm.server.unwrap_or_default(),
            state: State::Queued,
            target_vm_uuid: Some(vm.uuid),
            target_server_uuid: target,
            vm_uuid: vm.uuid,
            data_version: Some(1),
            duration_ms: None,
            started_timestamp: None,
            scheduled_timestamp: None,
            finished_timestamp: None,
            last_sync_size: None,
            error: None,
            error_detail: None,
            reserved_nics: Vec::new(),
            intent: migration_core::intent::Intent {
                affinity: asked.affinity.iter().map(|rule| json!(rule)).collect(),
                bwlimit: asked.bwlimit.filter(|limit| *limit > 0),
                max_downtime: asked.max_downtime.filter(|most| *most > 0),
                ..migration_core::intent::Intent::default()
            },
        })
    }
}

/// Returns true if the streams of the VM set limits of filesystems or snapshots.
fn has_limits(vm: &Map<String, Value>) -> bool {
    let keys = ["zfs_filesystem_limit", "zfs_snapshot_limit"];
    keys.iter().any(|key| vm.get(*key).is_some_and(Value::is_number))
}

/// VMAPI's record.
fn known(vm: &Vm) -> Situation {
    let nics = vm.list("nics").iter().filter(|nic| {
        let has = |name: &str| nic[name].as_str().is_some_and(|text| !text.is_empty());
        !has("network_uuid") || !has("ip")
    });
    Situation {
        state: vm.text("state").unwrap_or_default().to_owned(),
        is_core: vm.tag("smartdc_type") == Some("core"),
        is_nat: vm.tag("smartdc_role") == Some("nat"),
        pci_devices: vm.list("pci_devices").len(),
        lacks_image: vm.object.contains_key("disks") && checks::object::lacks_image(&vm.object),
        object: None,
        odd_nics: nics.map(|nic| nic["mac"].as_str().unwrap_or("?").to_owned()).collect(),
        used_bytes: 0,
        has_image: true,
        source: None,
        target: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // R4
    fn a_nic_without_network_or_address_is_named() {
        let object = json!({"nics": [
            {"mac": "90:b8:d0:00:00:01", "network_uuid": "n", "ip": "10.0.0.1"},
            {"mac": "90:b8:d0:00:00:02", "ip": "10.0.0.2"},
            {"mac": "90:b8:d0:00:00:03", "network_uuid": "n", "ip": ""},
            {},
        ]});
        let Value::Object(object) = object else { panic!() };
        let vm = Vm { uuid: Uuid::nil(), object, server: None };
        assert_eq!(known(&vm).odd_nics, ["90:b8:d0:00:00:02", "90:b8:d0:00:00:03", "?"]);
    }
}
