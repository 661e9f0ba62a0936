// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Seeds: the records of a data centre, among them wrong ones (leaked, without a node, stuck in
//! provisioning).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::mac;
use super::rows::{FLAGS, NicRow};
use super::store::Store;
use crate::restify::Params;

/// Records to create, in the shapes the API takes. Times can be given for NICs as `age_s`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeedFile {
    /// NIC tags.
    pub nic_tags: Vec<Params>,
    /// Networks; those of a fabric with the `nic_tag` that NAPI shows, as `sdc_overlay/11`.
    pub networks: Vec<Params>,
    /// Network pools.
    pub network_pools: Vec<Params>,
    /// NICs.
    pub nics: Vec<Params>,
}

/// A NIC record to add.
#[derive(Debug, Clone)]
pub struct NewNic {
    fields: Params,
    age: Duration,
}

impl NewNic {
    /// A NIC of a VM on a node, running, just created.
    pub fn zone(mac: &str, vm_uuid: &str, cn_uuid: &str) -> Self {
        let fields = json!({
            "mac": mac,
            "belongs_to_type": "zone",
            "belongs_to_uuid": vm_uuid,
            "owner_uuid": "a0000000-0000-4000-8000-000000000001",
            "cn_uuid": cn_uuid,
            "state": "running",
        });
        Self { fields: as_map(fields), age: Duration::ZERO }
    }

    /// A NIC of a server.
    pub fn server(mac: &str, cn_uuid: &str) -> Self {
        Self::zone(mac, cn_uuid, cn_uuid)
            .with("belongs_to_type", json!("server"))
            .without("cn_uuid")
    }

    /// Sets a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.to_owned(), value);
        self
    }

    /// Leaves a field out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields.remove(name);
        self
    }

    /// Created and last changed this long ago.
    #[must_use]
    pub fn aged(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }
}

fn as_map(value: Value) -> Params {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The network as its route would take it, and its vnet if it is one of a fabric.
fn of_a_fabric(record: &Params) -> (Params, Option<u32>) {
    let mut given = record.clone();
    let tag = record.get("nic_tag").and_then(Value::as_str).and_then(|tag| tag.split_once('/'));
    let Some((tag, vnet)) = tag else { return (given, None) };
    given.insert("nic_tag".to_owned(), json!(tag));
    given.remove("fabric");
    given.remove("vnet_id");
    (given, vnet.parse().ok())
}

impl Store {
    /// Creates the records of a seed; the first refusal ends it.
    pub fn seed(&self, seed: &SeedFile) -> Result<(), String> {
        let mut world = self.world();
        let refused = |what: &str, record: &Params, error: super::errors::ApiError| {
            format!("{what} {}: {}", Value::Object(record.clone()), error.into_parts().1)
        };
        for record in &seed.nic_tags {
            world.create_tag(record).map_err(|e| refused("nic tag", record, e))?;
        }
        for record in &seed.networks {
            let (given, vnet) = of_a_fabric(record);
            let made = world.create_network(&given, None);
            let made = made.map_err(|e| refused("network", record, e))?;
            let row = made["uuid"].as_str().and_then(|uuid| world.networks.get_mut(uuid));
            if let Some(row) = row.filter(|_| vnet.is_some()) {
                row.vnet = vnet;
            }
        }
        for record in &seed.network_pools {
            world.create_pool(record).map_err(|e| refused("network pool", record, e))?;
        }
        drop(world);
        for record in &seed.nics {
            let mut record = record.clone();
            let age = record.remove("age_s").and_then(|age| age.as_u64()).unwrap_or(0);
            self.add_nic(NewNic { fields: record, age: Duration::from_secs(age) })?;
        }
        Ok(())
    }

    /// Creates a NIC of the given age as the API would. Returns its address.
    pub fn add_nic(&self, nic: NewNic) -> Result<String, String> {
        let age = i64::try_from(nic.age.as_millis()).unwrap_or(i64::MAX);
        let now = self.now_ms().saturating_sub(age);
        let row = self.world().create_nic(&nic.fields, now).map_err(|error| {
            format!("nic {}: {}", Value::Object(nic.fields), error.into_parts().1)
        })?;
        Ok(mac::print(row.mac))
    }

    /// Changes a NIC as another client would.
    pub fn change_nic(&self, mac: &str, changes: &Map<String, Value>) -> Result<(), String> {
        let number = mac::parse(mac).ok_or_else(|| format!("not an address: {mac}"))?;
        let now = self.now_ms();
        self.world()
            .update_nic(number, changes, now)
            .map(drop)
            .map_err(|error| format!("nic {mac}: {}", error.into_parts().1))
    }

    /// Deletes a NIC as another client would. Returns whether it existed.
    pub fn remove(&self, mac: &str) -> bool {
        mac::parse(mac).is_some_and(|number| self.world().remove_nic(number).is_some())
    }

    /// Moves both time stamps of a NIC back.
    pub fn backdate(&self, mac: &str, by: Duration) -> bool {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.rewrite(mac, |row| {
            row.created = row.created.saturating_sub(by);
            row.modified = row.modified.saturating_sub(by);
        })
    }

    /// Stores a value that the API refuses and that older code has stored: a uuid in capitals, several nodes.
    /// Returns whether the NIC exists and has such a field.
    pub fn store_unchecked(&self, mac: &str, field: &str, value: &Value) -> bool {
        let several = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let mut texts: Vec<String> =
            several.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        match field {
            "cn_uuid" => self.rewrite(mac, |row| {
                (row.cn_uuids, row.cn_in_array) = (texts, value.is_array());
            }),
            "belongs_to_uuid" => {
                self.rewrite(mac, |row| row.belongs_to_uuid = texts.pop().unwrap_or_default())
            }
            _ => false,
        }
    }

    /// Deletes the network of a NIC under it: NAPI shows the record no more, nor any page with it.
    pub fn lose_network(&self, mac: &str) -> bool {
        let lost = (
            "00000000-0000-4000-8000-000000000000".to_owned(),
            std::net::Ipv4Addr::LOCALHOST.into(),
        );
        self.rewrite(mac, |row| row.address = Some(lost))
    }

    /// Stores a NIC anew without any check. Returns whether it exists.
    fn rewrite(&self, mac: &str, change: impl FnOnce(&mut NicRow)) -> bool {
        let mut world = self.world();
        let Some(mut row) = mac::parse(mac).and_then(|number| world.nics.get(&number)).cloned()
        else {
            return false;
        };
        change(&mut row);
        let primary = row.primary;
        let row = world.put_nic(NicRow { primary: false, ..row });
        world.nics.insert(NicRow { primary, ..row });
        true
    }

    /// Adds the NIC records of these VMs of a node, in the state of their VM, with node and network.
    /// Missing networks and tags are created. Returns the addresses.
    pub fn seed_from_vms(
        &self,
        vms: &[Map<String, Value>],
        cn_uuid: &str,
    ) -> Result<Vec<String>, String> {
        let mut made = Vec::new();
        for vm in vms {
            let text = |name: &str| vm.get(name).and_then(Value::as_str);
            if vm.get("do_not_inventory") == Some(&Value::Bool(true)) {
                continue;
            }
            let Some(uuid) = text("uuid").or(text("zonename")) else { continue };
            let state = if text("state") == Some("running") { "running" } else { "stopped" };
            let owner = text("owner_uuid").unwrap_or("00000000-0000-0000-0000-000000000000");
            let nics =
                vm.get("nics").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for nic in nics.iter().filter_map(Value::as_object) {
                let Some(address) = nic.get("mac").and_then(Value::as_str) else { continue };
                let mut record = NewNic::zone(address, uuid, cn_uuid)
                    .with("owner_uuid", json!(owner))
                    .with("state", json!(state))
                    .with("check_owner", json!(false))
                    .with("primary", json!(nic.get("primary") == Some(&Value::Bool(true))))
                    .aged(Duration::from_secs(7 * 24 * 3600));
                if let Some(model) =
                    nic.get("model").and_then(Value::as_str).filter(|m| !m.is_empty())
                {
                    record = record.with("model", json!(model));
                }
                for flag in FLAGS.iter().filter(|f| f.starts_with("allow_")) {
                    if nic.get(*flag) == Some(&Value::Bool(true)) {
                        record = record.with(flag, json!(true));
                    }
                }
                if let Some((network, ip)) = self.network_for(nic) {
                    record = record.with("network_uuid", json!(network)).with("ip", json!(ip));
                } else if let Some(tag) = nic.get("nic_tag").and_then(Value::as_str) {
                    self.ensure_tag(tag);
                    record = record.with("nic_tag", json!(tag));
                }
                made.push(self.add_nic(record)?);
            }
        }
        Ok(made)
    }

    fn ensure_tag(&self, tag: &str) {
        let name = tag.split('/').next().unwrap_or(tag);
        let record = (uuid::Uuid::new_v4().to_string(), 1500);
        self.world().tags.entry(name.to_owned()).or_insert(record);
    }

    /// The network of a VM's NIC, made up from the NIC if the store lacks it.
    fn network_for(&self, nic: &Map<String, Value>) -> Option<(String, String)> {
        let text = |name: &str| nic.get(name).and_then(Value::as_str);
        let ip = text("ip").filter(|ip| ip.parse::<std::net::Ipv4Addr>().is_ok())?;
        let mask: std::net::Ipv4Addr = text("netmask")?.parse().ok()?;
        let prefix = mask.to_bits().leading_ones();
        let base = ip.parse::<std::net::Ipv4Addr>().ok()?.to_bits() & mask.to_bits();
        let last = base | !mask.to_bits();
        let tag = text("nic_tag").unwrap_or("external").split('/').next()?.to_owned();
        self.ensure_tag(&tag);
        let uuid = match text("network_uuid") {
            Some(uuid) => uuid.to_owned(),
            None => format!("00000000-0000-4000-8000-0000{base:08x}"),
        };
        if !self.world().networks.contains_key(&uuid) {
            let at = |number: u32| std::net::Ipv4Addr::from_bits(number).to_string();
            let mut network = as_map(json!({
                "uuid": uuid,
                "name": format!("network-{}", at(base)),
                "nic_tag": tag,
                "vlan_id": nic.get("vlan_id").and_then(Value::as_u64).unwrap_or(0),
                "subnet": format!("{}/{prefix}", at(base)),
                "provision_start_ip": at(base.saturating_add(2).min(last)),
                "provision_end_ip": at(last.saturating_sub(1).max(base)),
            }));
            if let Some(gateway) = text("gateway").filter(|g| *g != ip) {
                network.insert("gateway".to_owned(), json!(gateway));
            }
            self.world().create_network(&network, None).ok()?;
        }
        let world = self.world();
        let taken = world
            .networks
            .get(&uuid)?
            .ips
            .get(&ip.parse().ok()?)
            .is_some_and(|row| row.belongs_to_uuid.is_some());
        (!taken).then(|| (uuid, ip.to_owned()))
    }

    /// A leaked NIC: its VM exists nowhere.
    pub fn add_leaked(&self, mac: &str, cn_uuid: &str, age: Duration) -> Result<String, String> {
        self.add_nic(NewNic::zone(mac, &uuid::Uuid::new_v4().to_string(), cn_uuid).aged(age))
    }

    /// A NIC from before NAPI kept the node: no `cn_uuid`.
    pub fn add_without_cn(
        &self,
        mac: &str,
        vm_uuid: &str,
        age: Duration,
    ) -> Result<String, String> {
        self.add_nic(NewNic::zone(mac, vm_uuid, vm_uuid).without("cn_uuid").aged(age))
    }

    /// A NIC whose provisioning never ended.
    pub fn add_stuck(
        &self,
        mac: &str,
        vm_uuid: &str,
        cn_uuid: &str,
        age: Duration,
    ) -> Result<String, String> {
        self.add_nic(
            NewNic::zone(mac, vm_uuid, cn_uuid).with("state", json!("provisioning")).aged(age),
        )
    }

    /// The admin NIC of a node, as the booter leaves it or as the node has claimed it.
    pub fn add_admin_nic(&self, mac: &str, cn_uuid: &str, claimed: bool) -> Result<String, String> {
        let admin = self.options().admin_uuid.clone();
        let nic = NewNic::server(mac, cn_uuid)
            .with("owner_uuid", json!(admin))
            .aged(Duration::from_secs(24 * 3600));
        let nic = if claimed {
            nic.with("cn_uuid", json!(cn_uuid))
        } else {
            nic.with("belongs_to_type", json!("other"))
                .with("belongs_to_uuid", json!(admin))
                .without("state")
        };
        self.add_nic(nic)
    }
}
