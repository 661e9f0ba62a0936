// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The smaller verbs of vmadm: changes of an existing VM. Like `verbs.rs`, each writes the files
//! and runs the steps of vmadm, and then waits for vminfod.

use sdc_clients::MacAddr;
use serde_json::{Map, Value, json};

use crate::error::NodeError;
use crate::node::Node;
use crate::payload::{self, Payload};
use crate::state::Zone;
use crate::verbs::Verbs;
use crate::vmadm::nics::whole_mac;
use crate::vmadm::update::Subject;
use crate::vmadm::volumes::{self, Step};
use crate::vmadm::{self, forms};
use crate::{clock, config, files, protection, zones};

/// The maps of a VM that live in its config directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigMap {
    /// `tags.json`
    Tags,
    /// `routes.json`
    Routes,
    /// The customer's part of `metadata.json`.
    CustomerMetadata,
    /// The operator's part of `metadata.json`.
    InternalMetadata,
}

impl ConfigMap {
    /// The key in the VM object.
    pub fn key(self) -> &'static str {
        match self {
            ConfigMap::Tags => "tags",
            ConfigMap::Routes => "routes",
            ConfigMap::CustomerMetadata => "customer_metadata",
            ConfigMap::InternalMetadata => "internal_metadata",
        }
    }

    /// The singular that update payloads use: `set_tags`, `remove_customer_metadata`.
    fn file(self) -> &'static str {
        match self {
            ConfigMap::Tags => "tags.json",
            ConfigMap::Routes => "routes.json",
            _ => "metadata.json",
        }
    }

    const ALL: [ConfigMap; 4] = [
        ConfigMap::Tags,
        ConfigMap::Routes,
        ConfigMap::CustomerMetadata,
        ConfigMap::InternalMetadata,
    ];
}

fn nic_of(vm: Option<&Payload>, mac: MacAddr) -> Option<&Value> {
    let nics = vm?.get("nics")?.as_array()?;
    nics.iter().find(|n| n["mac"].as_str().and_then(|m| m.parse().ok()) == Some(mac))
}

fn parse_mac(text: &str) -> Result<MacAddr, NodeError> {
    text.parse().map_err(|_| NodeError::invalid("mac", format!("'{text}' is no MAC address")))
}

impl Verbs {
    /// Changes one of the maps in the config directory. As vmadm does, it replaces the whole file.
    pub async fn set_map(
        &self,
        name: &str,
        map: ConfigMap,
        set: Map<String, Value>,
        remove: Vec<String>,
    ) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let zonepath = zone.zonepath.clone();
        let after = self
            .on_node(move |node| {
                let file = node.path(&zonepath).join("config").join(map.file());
                node.step(|_| {
                    let text = match std::fs::read(&file) {
                        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                            return Err(NodeError::io("read", &file, e));
                        }
                        read => read.unwrap_or_default(),
                    };
                    let mut all: Value =
                        serde_json::from_slice(&text).unwrap_or_else(|_| json!({}));
                    let wrong = || NodeError::malformed(&file, "expected an object");
                    let whole = all.as_object_mut().ok_or_else(wrong)?;
                    let part = match map.file() {
                        "metadata.json" => whole
                            .entry(map.key())
                            .or_insert_with(|| json!({}))
                            .as_object_mut()
                            .ok_or_else(wrong)?,
                        _ => whole,
                    };
                    part.extend(set);
                    part.retain(|key, _| !remove.contains(key));
                    let after = Value::Object(part.clone());
                    files::write_json(&file, &all)?;
                    Ok(after)
                })
            })
            .await?;
        self.wait().key(&zone.zonename, map.key(), &after).await
    }

    pub async fn update(&self, name: &str, given: &Payload) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let (z, payload, whole) = (zone.zonename.clone(), given.clone(), zone.clone());
        let changes = self.on_node(move |node| changes(node, &whole, &payload)).await?;
        let (after, top) = (changes.clone(), zone.zonepath.trim_start_matches('/').to_string());
        self.on_node(move |node| {
            for step in volumes::volumes(&after) {
                node.zfs(|all| step.make(all))?;
            }
            node.zone_reconfigure(&z, |xml| config::changes::apply_changes(xml, &after))?;
            datasets(node, &top, &after)
        })
        .await?;
        let z = zone.zonename.as_str();
        for map in ConfigMap::ALL {
            let key = map.key();
            let set = changes.get(&format!("set_{key}")).and_then(Value::as_object).cloned();
            let removed = changes.get(&format!("remove_{key}")).and_then(Value::as_array);
            if set.is_some() || removed.is_some() {
                let removed = removed.into_iter().flatten().map(forms::printed).collect();
                self.set_map(z, map, set.unwrap_or_default(), removed).await?;
            }
        }
        if let Some(quota) = changes.get("quota").and_then(Value::as_u64) {
            self.set_quota(z, quota).await?;
        }
        for (flag, value) in protection::flags(&changes) {
            let set = forms::is_true(value);
            let shows = |vm: &Payload| vm.get(flag).is_some_and(forms::is_true) == set;
            self.wait().until(z, flag, |vm| vm.is_some_and(shows)).await?;
        }
        let is_shown = |key: &str| {
            config::changes::is_stored(key) && !(payload::is_hvm(&zone.brand) && key == "tmpfs")
        };
        self.seen(z, changes.iter().filter(|(key, _)| is_shown(key))).await?;
        self.seen_nics(z, &changes).await
    }

    /// Waits until vminfod shows the NICs as they were changed.
    async fn seen_nics(&self, zonename: &str, changes: &Payload) -> Result<(), NodeError> {
        let macs = |list: &str| -> Vec<MacAddr> {
            let nics = forms::objects(changes, list).into_iter();
            nics.filter_map(|nic| payload::text(nic, "mac")?.parse().ok()).collect()
        };
        for mac in macs("nics").into_iter().chain(macs("update_nics")) {
            self.wait().until(zonename, "the NIC", |vm| nic_of(vm, mac).is_some()).await?;
        }
        let removed = changes.get("remove_nics").and_then(Value::as_array);
        for mac in removed.into_iter().flatten().filter_map(|mac| mac.as_str()?.parse().ok()) {
            let gone = |vm: Option<&Payload>| vm.is_some() && nic_of(vm, mac).is_none();
            self.wait().until(zonename, "the removed NIC", gone).await?;
        }
        Ok(())
    }

    /// vmadm update with one NIC to add. Returns its MAC, which is generated if absent, as the VM's object shows
    /// it.
    pub async fn add_nic(&self, name: &str, nic: &Payload) -> Result<String, NodeError> {
        let zone = self.resolve(name)?;
        let mut nic = nic.clone();
        if !nic.contains_key("mac") {
            let b = *uuid::Uuid::new_v4().as_bytes();
            nic.insert(
                "mac".to_string(),
                json!(format!("90:b8:d0:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2])),
            );
        }
        let mac = parse_mac(payload::text(&nic, "mac").unwrap_or_default())?;
        let changes = Payload::from_iter([("add_nics".to_string(), json!([nic]))]);
        self.update(&zone.zonename, &changes).await?;
        Ok(whole_mac(&mac.to_string()))
    }

    /// vmadm update with properties of one NIC, found by its `mac`.
    pub async fn update_nic(&self, name: &str, nic: &Payload) -> Result<(), NodeError> {
        let changes = Payload::from_iter([("update_nics".to_string(), json!([nic]))]);
        self.update(name, &changes).await?;
        let zone = self.resolve(name)?;
        let mac = parse_mac(payload::text(nic, "mac").unwrap_or_default())?;
        let is_same = |now: Option<&Value>, wanted: &Value| now == Some(wanted);
        let fields = ["ip", "ips", "network_uuid", "nic_tag", "vlan_id"];
        let wanted: Vec<_> = nic.iter().filter(|(key, _)| fields.contains(&key.as_str())).collect();
        let seen = |vm: Option<&Payload>| {
            nic_of(vm, mac).is_some_and(|now| {
                wanted.iter().all(|(key, value)| is_same(now.get(key.as_str()), value))
            })
        };
        self.wait().until(&zone.zonename, "the changed NIC", seen).await
    }

    /// vmadm update with one NIC to remove.
    pub async fn remove_nic(&self, name: &str, mac: &str) -> Result<(), NodeError> {
        let changes = Payload::from_iter([("remove_nics".to_string(), json!([mac]))]);
        self.update(name, &changes).await
    }

    /// Sets or removes `do_not_inventory`.
    pub async fn hide(&self, name: &str, hidden: bool) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let value = if hidden { json!(true) } else { Value::Null };
        self.set_field(&zone.zonename, "do_not_inventory", value).await
    }

    /// The guest restarts itself: the kernel starts init again.
    pub async fn restart_init(&self, name: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let z = zone.zonename.clone();
        let after = self
            .on_node(move |node| {
                node.zone_restart_init(&z)?;
                node.zone(&z)
            })
            .await?;
        let restarts = json!(after.kstat.map_or(0, |k| k.init_restarts));
        self.wait().key(&zone.zonename, "init_restarts", &restarts).await
    }

    /// vmadm create-snapshot.
    pub async fn snapshot(&self, name: &str, snapshot: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let full = self.snapshot_name(&zone.zonepath, snapshot)?;
        let z = zone.zonename.clone();
        self.on_node(move |node| {
            node.zfs(|all| all.snapshot(&full, false))?;
            // vmadm moves last_modified by touching the configuration.
            files::touch(&node.zone_xml(&z), clock::now())
        })
        .await?;
        let seen = |vm: Option<&Payload>| has_snapshot(vm, snapshot);
        self.wait().until(&zone.zonename, "the snapshot", seen).await
    }

    /// vmadm delete-snapshot.
    pub async fn delete_snapshot(&self, name: &str, snapshot: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let full = self.snapshot_name(&zone.zonepath, snapshot)?;
        self.on_node(move |node| node.zfs(|all| all.destroy(&full, false))).await?;
        let seen = |vm: Option<&Payload>| vm.is_some() && !has_snapshot(vm, snapshot);
        self.wait().until(&zone.zonename, "the deleted snapshot", seen).await
    }

    /// vmadm rollback-snapshot: the VM is stopped, rolled back with its files, and started again.
    pub async fn rollback(&self, name: &str, snapshot: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let full = self.snapshot_name(&zone.zonepath, snapshot)?;
        if self.node().datasets()?.get(&full).is_none() {
            return Err(NodeError::NoSuchDataset(full));
        }
        if zone.state.is_active() {
            self.stop(&zone.zonename, zones::CLEAN_EXIT).await?;
        }
        self.on_node(move |node| node.zfs_rollback(&full, true)).await?;
        self.wait().until(&zone.zonename, "the rollback", |vm| has_snapshot(vm, snapshot)).await?;
        if zone.state.is_active() {
            self.start(&zone.zonename).await?;
        }
        Ok(())
    }

    fn snapshot_name(&self, zonepath: &str, snapshot: &str) -> Result<String, NodeError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
        match !snapshot.is_empty() && snapshot.len() <= 64 && snapshot.chars().all(fine) {
            true => Ok(format!("{}@vmsnap-{snapshot}", zonepath.trim_start_matches('/'))),
            false => Err(NodeError::invalid("snapshot name", format!("{snapshot:?}"))),
        }
    }
}

/// What vmadm makes of an update's payload for this VM.
fn changes(node: &Node, zone: &Zone, given: &Payload) -> Result<Payload, NodeError> {
    let read = |file: &str| -> Payload {
        let path = node.path(&zone.zonepath).join("config").join(file);
        std::fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    };
    let metadata = read("metadata.json");
    let internal = metadata.get("internal_metadata").and_then(Value::as_object);
    let rests = !zone.state.is_active();
    let state = if rests { "stopped" } else { zone.state.as_str() };
    let subject = Subject {
        rests,
        state: format!("{state} ({})", zone.state.as_str()),
        routes: read("routes.json"),
        has_docker_id: internal.is_some_and(|internal| internal.contains_key("docker:id")),
        ..config::read::subject(&node.zone_config(&zone.zonename)?)
    };
    Ok(vmadm::update::update(&subject, given, &mut node.around(given)?)?)
}

/// What an update changes of the datasets, once the configuration has it.
fn datasets(node: &Node, top: &str, changes: &Payload) -> Result<(), NodeError> {
    let dataset = |path: &str| path.strip_prefix("/dev/zvol/rdsk/").map(str::to_string);
    let removed = changes.get("remove_disks").and_then(Value::as_array);
    let mut steps: Vec<Step> = removed
        .into_iter()
        .flatten()
        .filter_map(|path| dataset(path.as_str()?))
        .map(Step::Destroy)
        .collect();
    for disk in forms::objects(changes, "update_disks") {
        let Some(name) = payload::text(disk, "path").and_then(dataset) else { continue };
        let given = |key: &str| disk.get(key).map(forms::printed);
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        pairs.extend(given("size").map(|mib| ("volsize", format!("{mib}M"))));
        pairs.extend(given("refreservation").map(|mib| ("refreservation", format!("{mib}M"))));
        pairs.extend(given("compression").map(|value| ("compression", value)));
        steps.push(Step::Set(name, pairs));
    }
    let (of_root, of_data) = volumes::properties(changes);
    steps.push(Step::Set(top.to_string(), of_root));
    if changes.contains_key("zfs_data_compression") || changes.contains_key("zfs_data_recsize") {
        steps.push(Step::Set(format!("{top}/data"), of_data));
    }
    for step in steps {
        let is_there = match &step {
            Step::Set(name, _) | Step::Destroy(name) => node.datasets()?.get(name).is_some(),
            _ => true,
        };
        if is_there {
            node.zfs(|all| step.make(all))?;
        }
    }
    node.zfs(|all| protection::apply(all, top, changes))
}

fn has_snapshot(vm: Option<&Payload>, snapshot: &str) -> bool {
    let all = vm.and_then(|v| v.get("snapshots")).and_then(Value::as_array);
    all.into_iter().flatten().any(|s| s["name"] == json!(snapshot))
}
