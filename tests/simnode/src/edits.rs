// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The smaller verbs of vmadm: changes of an existing VM. Like `verbs.rs`, each writes the files
//! and runs the steps of vmadm, and then waits for vminfod.

use sdc_clients::MacAddr;
use serde_json::{Map, Value, json};

use crate::error::NodeError;
use crate::payload::{self, Payload};
use crate::verbs::Verbs;
use crate::xml::Element;
use crate::{clock, files, memory, zones};

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

fn same_mac(element: &Element, mac: MacAddr) -> bool {
    element.name == "network" && element.get("mac-addr").and_then(|m| m.parse().ok()) == Some(mac)
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

    /// vmadm update: fields, `add_nics`, `update_nics`, `remove_nics`, `set_tags` and the like.
    pub async fn update(&self, name: &str, changes: &Payload) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let z = zone.zonename.as_str();
        let mut fields = Payload::new();
        let mut whole = changes.clone();
        memory::follow(&mut whole, &self.node().zone_config(z)?);
        for (key, value) in &whole {
            let map = ConfigMap::ALL.into_iter().find_map(|m| match key.split_once('_') {
                Some(("set", rest)) if rest == m.key() => Some((m, true)),
                Some(("remove", rest)) if rest == m.key() => Some((m, false)),
                _ => None,
            });
            let strings = || -> Result<Vec<String>, NodeError> {
                let wrong = || NodeError::invalid(key.as_str(), "expected an array of strings");
                let items = value.as_array().ok_or_else(wrong)?;
                items.iter().map(|i| i.as_str().map(str::to_string).ok_or_else(wrong)).collect()
            };
            match (map, key.as_str()) {
                (Some((map, true)), _) => {
                    let set = value
                        .as_object()
                        .ok_or_else(|| NodeError::invalid(key.as_str(), "expected an object"))?;
                    self.set_map(z, map, set.clone(), Vec::new()).await?;
                }
                (Some((map, false)), _) => self.set_map(z, map, Map::new(), strings()?).await?,
                (None, "quota") => {
                    let gib = value
                        .as_u64()
                        .ok_or_else(|| NodeError::invalid("quota", "expected whole GiB"))?;
                    self.set_quota(z, gib).await?;
                }
                (None, "add_nics") => {
                    for nic in payload::list(changes, "add_nics")? {
                        self.add_nic(z, nic).await?;
                    }
                }
                (None, "update_nics") => {
                    for nic in payload::list(changes, "update_nics")? {
                        self.update_nic(z, nic).await?;
                    }
                }
                (None, "remove_nics") => {
                    for mac in strings()? {
                        self.remove_nic(z, &mac).await?;
                    }
                }
                _ => drop(fields.insert(key.clone(), value.clone())),
            }
        }
        if fields.is_empty() {
            return Ok(());
        }
        self.set_fields(z, &fields).await
    }

    /// vmadm update with one NIC to add. Returns its MAC, which is generated if absent.
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
        let z = zone.zonename.clone();
        self.on_node(move |node| {
            node.zone_reconfigure(&z, |xml| {
                if xml.children.iter().any(|c| same_mac(c, mac)) {
                    return Err(NodeError::refused(format!("VM {z} has a NIC {mac} already")));
                }
                let taken: Vec<&str> =
                    xml.all("network").filter_map(|c| c.get("physical")).collect();
                let stem = if zone.brand == "lx" { "eth" } else { "net" };
                let free = (0..)
                    .find(|n| !taken.contains(&format!("{stem}{n}").as_str()))
                    .unwrap_or_default();
                let network = payload::network(&nic, free, &zone.brand)?;
                xml.children.push(network);
                Ok(())
            })
        })
        .await?;
        self.wait().until(&zone.zonename, "the new NIC", |vm| nic_of(vm, mac).is_some()).await?;
        Ok(mac.to_string())
    }

    /// vmadm update with properties of one NIC, found by its `mac`.
    pub async fn update_nic(&self, name: &str, nic: &Payload) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let mac = parse_mac(
            payload::text(nic, "mac").ok_or_else(|| NodeError::invalid("mac", "is required"))?,
        )?;
        let (z, changes) = (zone.zonename.clone(), nic.clone());
        self.on_node(move |node| {
            node.zone_reconfigure(&z, |xml| {
                match xml.children.iter_mut().find(|c| same_mac(c, mac)) {
                    Some(network) => payload::update_network(network, &changes),
                    None => Err(NodeError::refused(format!("VM {z} has no NIC {mac}"))),
                }
            })
        })
        .await?;
        let wanted: Vec<(String, Value)> = nic
            .iter()
            .filter(|(k, v)| *k != "mac" && !v.is_null() && payload::is_nic_attr(k))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let seen = |vm: Option<&Payload>| {
            nic_of(vm, mac).is_some_and(|nic| wanted.iter().all(|(k, v)| nic.get(k) == Some(v)))
        };
        self.wait().until(&zone.zonename, "the changed NIC", seen).await
    }

    /// vmadm update with one NIC to remove.
    pub async fn remove_nic(&self, name: &str, mac: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let mac = parse_mac(mac)?;
        let z = zone.zonename.clone();
        self.on_node(move |node| {
            node.zone_reconfigure(&z, |xml| {
                let before = xml.children.len();
                xml.children.retain(|c| !same_mac(c, mac));
                match xml.children.len() < before {
                    true => Ok(()),
                    false => Err(NodeError::refused(format!("VM {z} has no NIC {mac}"))),
                }
            })
        })
        .await?;
        self.wait()
            .until(&zone.zonename, "the removed NIC", |vm| {
                vm.is_some() && nic_of(vm, mac).is_none()
            })
            .await
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

fn has_snapshot(vm: Option<&Payload>, snapshot: &str) -> bool {
    let all = vm.and_then(|v| v.get("snapshots")).and_then(Value::as_array);
    all.into_iter().flatten().any(|s| s["name"] == json!(snapshot))
}
