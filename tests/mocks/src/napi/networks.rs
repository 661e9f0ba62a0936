// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Networks, pools, NIC tags and fabrics, as far as NICs need them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rand::RngExt;
use serde_json::{Map, Value, json};

use super::errors::{ApiError, element, missing, unknown, used_by};
use super::mac;
use super::params;
use super::render::network_json;
use super::rows::{IpRow, NetworkRow};
use super::store::World;
use super::subnet::{Subnet, to_number};
use crate::faults::glob;
use crate::restify::Params;

pub(super) fn text(given: &Params, name: &str) -> Option<String> {
    given.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn texts(given: &Params, name: &str) -> Vec<String> {
    given.get(name).and_then(params::elements).unwrap_or_default()
}

/// Refuses parameters that are not in the list.
pub(super) fn only(given: &Params, known: &[&str]) -> Result<(), ApiError> {
    let strangers: Vec<String> =
        given.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect();
    if strangers.is_empty() { Ok(()) } else { Err(ApiError::Invalid(vec![unknown(&strangers)])) }
}

fn new_uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub(super) fn page(given: &Params, all: Vec<Value>) -> Result<Value, ApiError> {
    let check = |e| ApiError::Invalid(vec![e]);
    let limit = given.get("limit").map(params::limit).transpose().map_err(check)?.unwrap_or(1000);
    let offset = given.get("offset").map(params::offset).transpose().map_err(check)?.unwrap_or(0);
    Ok(Value::Array(all.into_iter().skip(offset).take(limit).collect()))
}

impl World {
    /// The network of a path element.
    pub(super) fn find_network_by_name(&self, name: &str) -> Result<&NetworkRow, ApiError> {
        let found = match name {
            "admin" => self.networks.values().find(|n| n.name == "admin"),
            uuid => self.networks.get(uuid),
        };
        found.ok_or(ApiError::NotFound("network"))
    }

    pub(super) fn create_network(
        &mut self,
        given: &Params,
        fabric: Option<(&str, u16)>,
    ) -> Result<Value, ApiError> {
        let mut errors = Vec::new();
        let mut need = |name: &str| {
            let value = text(given, name);
            if value.is_none() {
                errors.push(missing(name));
            }
            value.unwrap_or_default()
        };
        let name = need("name");
        let subnet = need("subnet");
        let start = need("provision_start_ip");
        let end = need("provision_end_ip");
        let nic_tag = if fabric.is_some() { "sdc_overlay".to_owned() } else { need("nic_tag") };
        if !errors.is_empty() {
            return Err(ApiError::Invalid(errors));
        }
        let subnet = Subnet::parse(&subnet)
            .ok_or_else(|| ApiError::invalid("subnet", "Subnet must be in CIDR form"))?;
        let address = |field: &str, text: &str| {
            text.parse::<IpAddr>().map_err(|_| ApiError::invalid(field, "invalid IP address"))
        };
        let (start, end) =
            (address("provision_start_ip", &start)?, address("provision_end_ip", &end)?);
        if !self.tags.contains_key(&nic_tag) {
            return Err(ApiError::invalid("nic_tag", "nic tag does not exist"));
        }
        let vlan_id = match fabric {
            Some((_, vlan)) => vlan,
            None => given
                .get("vlan_id")
                .and_then(Value::as_u64)
                .and_then(|v| u16::try_from(v).ok())
                .unwrap_or(0),
        };
        let vnet = fabric.map(|(owner, _)| {
            let random = self.rng.random::<u32>() & 0xFF_FFFF;
            *self.vnets.entry(owner.to_owned()).or_insert(random)
        });
        let default_mtu = if fabric.is_some() { 1400 } else { 1500 };
        let mut row = NetworkRow {
            uuid: text(given, "uuid").unwrap_or_else(new_uuid),
            name,
            nic_tag,
            vlan_id,
            subnet,
            start,
            end,
            mtu: given
                .get("mtu")
                .and_then(Value::as_u64)
                .and_then(|m| u32::try_from(m).ok())
                .unwrap_or(default_mtu),
            gateway: text(given, "gateway"),
            resolvers: texts(given, "resolvers"),
            routes: given
                .get("routes")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_else(Map::new),
            owner_uuids: match fabric {
                Some((owner, _)) => vec![owner.to_owned()],
                None => texts(given, "owner_uuids"),
            },
            description: text(given, "description"),
            vnet,
            ips: std::collections::BTreeMap::new(),
        };
        self.set_aside(&mut row);
        let answer = network_json(&row, self.era);
        self.networks.insert(row.uuid.clone(), row);
        Ok(answer)
    }

    /// The records every new network starts with: its borders, and addresses never given out.
    fn set_aside(&mut self, row: &mut NetworkRow) {
        let borders = [to_number(row.start).checked_sub(1), to_number(row.end).checked_add(1)];
        for ip in borders.into_iter().flatten().map(|n| row.subnet.address(n)) {
            if row.subnet.contains(ip) {
                row.ips.insert(ip, IpRow::default());
            }
        }
        let admin = Some(self.admin_uuid.clone());
        let named =
            row.gateway.iter().chain(&row.resolvers).filter_map(|ip| ip.parse::<IpAddr>().ok());
        let broadcast = (!row.subnet.is_v6()).then(|| row.subnet.broadcast());
        let held: Vec<IpAddr> =
            named.chain(broadcast).filter(|ip| row.subnet.contains(*ip)).collect();
        for ip in held {
            row.ips.insert(
                ip,
                IpRow {
                    reserved: true,
                    belongs_to_type: Some("other".to_owned()),
                    belongs_to_uuid: admin.clone(),
                    owner_uuid: admin.clone(),
                    changed: 0,
                },
            );
        }
    }

    pub(super) fn list_networks(&self, given: &Params) -> Result<Value, ApiError> {
        only(
            given,
            &[
                "name",
                "nic_tag",
                "vlan_id",
                "provisionable_by",
                "limit",
                "offset",
                "uuid",
                "fabric",
                "family",
                "owner_uuid",
            ],
        )?;
        let families = given.get("family").and_then(params::elements).unwrap_or_default();
        if families.iter().any(|family| !matches!(family.as_str(), "ipv4" | "ipv6")) {
            return Err(ApiError::invalid("family", "must be one of: \"ipv4\", \"ipv6\""));
        }
        let mut rows: Vec<&NetworkRow> =
            self.networks.values().filter(|n| network_matches(n, given)).collect();
        rows.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
        page(given, rows.into_iter().map(|n| network_json(n, self.era)).collect())
    }

    pub(super) fn get_network(&self, name: &str, given: &Params) -> Result<Value, ApiError> {
        let row = self.find_network_by_name(name)?;
        if given.contains_key("fields") {
            return Err(ApiError::NotFound("network"));
        }
        if let Some(owner) = text(given, "provisionable_by")
            && !usable_by(row, &owner)
        {
            return Err(ApiError::NotAuthorized("owner cannot provision on network"));
        }
        Ok(network_json(row, self.era))
    }

    /// Changes what an operator changes on a network that is in use.
    pub(super) fn update_network(&mut self, name: &str, given: &Params) -> Result<Value, ApiError> {
        let uuid = self.find_network_by_name(name)?.uuid.clone();
        let era = self.era;
        let Some(row) = self.networks.get_mut(&uuid) else {
            return Err(ApiError::NotFound("network"));
        };
        if given.contains_key("resolvers") {
            row.resolvers = texts(given, "resolvers");
        }
        if given.contains_key("owner_uuids") {
            row.owner_uuids = texts(given, "owner_uuids");
        }
        row.description = text(given, "description").or(row.description.take());
        Ok(network_json(row, era))
    }

    pub(super) fn delete_network(&mut self, name: &str) -> Result<(), ApiError> {
        let uuid = self.find_network_by_name(name)?.uuid.clone();
        let users: Vec<Value> = self
            .nics
            .values()
            .filter(|nic| nic.address.as_ref().is_some_and(|(n, _)| *n == uuid))
            .map(|nic| used_by("nic", &mac::print(nic.mac), "In use", None))
            .collect();
        if !users.is_empty() {
            return Err(ApiError::InUse("network must have no NICs provisioned".to_owned(), users));
        }
        self.networks.remove(&uuid);
        Ok(())
    }

    pub(super) fn create_pool(&mut self, given: &Params) -> Result<Value, ApiError> {
        let Some(name) = text(given, "name") else {
            return Err(ApiError::Invalid(vec![missing("name")]));
        };
        let uuid = text(given, "uuid").unwrap_or_else(new_uuid);
        let networks = texts(given, "networks");
        self.pools.insert(uuid.clone(), (name, networks));
        self.get_pool(&uuid)
    }

    pub(super) fn get_pool(&self, uuid: &str) -> Result<Value, ApiError> {
        let (name, networks) = self.pools.get(uuid).ok_or(ApiError::NotFound("network pool"))?;
        let members = networks.iter().filter_map(|uuid| self.networks.get(uuid));
        let tags: BTreeSet<&str> = members.map(|network| network.nic_tag.as_str()).collect();
        let first = tags.first().copied();
        Ok(json!({ "family": "ipv4", "uuid": uuid, "name": name, "networks": networks,
            "nic_tags_present": tags, "nic_tag": first }))
    }

    pub(super) fn list_pools(&self, given: &Params) -> Result<Value, ApiError> {
        page(given, self.pools.keys().filter_map(|uuid| self.get_pool(uuid).ok()).collect())
    }

    pub(super) fn create_tag(&mut self, given: &Params) -> Result<Value, ApiError> {
        let Some(name) = text(given, "name") else {
            return Err(ApiError::Invalid(vec![missing("name")]));
        };
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(ApiError::invalid(
                "name",
                "must only contain numbers, letters and underscores",
            ));
        }
        if name.len() > 31 {
            return Err(ApiError::invalid("name", "must not be longer than 31 characters"));
        }
        if given.get("mtu").and_then(Value::as_u64).is_some_and(|mtu| mtu > 9000) {
            return Err(ApiError::invalid("mtu", "must be a number between 1500 and 9000"));
        }
        if self.tags.contains_key(&name) {
            return Err(ApiError::Invalid(vec![element("name", "Duplicate", "Already exists")]));
        }
        let uuid = text(given, "uuid").unwrap_or_else(new_uuid);
        let mtu = given
            .get("mtu")
            .and_then(Value::as_u64)
            .and_then(|m| u32::try_from(m).ok())
            .unwrap_or(1500);
        self.tags.insert(name.clone(), (uuid, mtu));
        self.get_tag(&name)
    }

    pub(super) fn get_tag(&self, name: &str) -> Result<Value, ApiError> {
        let (uuid, mtu) = self.tags.get(name).ok_or(ApiError::NotFound("nic tag"))?;
        Ok(json!({ "mtu": mtu, "name": name, "uuid": uuid }))
    }

    pub(super) fn list_tags(&self, given: &Params) -> Result<Value, ApiError> {
        only(given, &["limit", "offset"])?;
        page(given, self.tags.keys().filter_map(|name| self.get_tag(name).ok()).collect())
    }

    pub(super) fn delete_tag(&mut self, name: &str) -> Result<(), ApiError> {
        if !self.tags.contains_key(name) {
            return Err(ApiError::Storage(format!("napi_nic_tags::{name} does not exist")));
        }
        let users: Vec<Value> = self
            .networks
            .values()
            .filter(|n| n.nic_tag == name)
            .map(|n| used_by("network", &n.uuid, "In use", Some("nic_tag")))
            .collect();
        if !users.is_empty() {
            return Err(ApiError::Invalid(users));
        }
        self.tags.remove(name);
        Ok(())
    }

    pub(super) fn create_vlan(&mut self, owner: &str, given: &Params) -> Result<Value, ApiError> {
        let Some(vlan) =
            given.get("vlan_id").and_then(Value::as_u64).and_then(|v| u16::try_from(v).ok())
        else {
            return Err(ApiError::Invalid(vec![missing("vlan_id")]));
        };
        let random = self.rng.random::<u32>() & 0xFF_FFFF;
        let vnet = *self.vnets.entry(owner.to_owned()).or_insert(random);
        let record = json!({ "name": text(given, "name"), "owner_uuid": owner, "vlan_id": vlan, "vnet_id": vnet });
        self.fabric_vlans.insert((owner.to_owned(), vlan), record.clone());
        Ok(record)
    }
}

fn usable_by(network: &NetworkRow, owner: &str) -> bool {
    network.owner_uuids.is_empty() || network.owner_uuids.iter().any(|o| o == owner)
}

fn network_matches(network: &NetworkRow, given: &Params) -> bool {
    let any = |name: &str, has: &str| {
        given
            .get(name)
            .and_then(params::elements)
            .is_none_or(|wanted| wanted.iter().any(|w| w == has))
    };
    // The storage takes a `*` in a text for any text.
    let like = |name: &str, has: &str| {
        let wanted = given.get(name).and_then(params::elements);
        wanted.is_none_or(|wanted| wanted.iter().any(|wanted| glob(wanted, has)))
    };
    like("name", &network.name)
        && any("nic_tag", &network.nic_tag)
        && like("uuid", &network.uuid)
        && any("vlan_id", &network.vlan_id.to_string())
        && any("fabric", if network.vnet.is_some() { "true" } else { "false" })
        && any("family", if network.subnet.is_v6() { "ipv6" } else { "ipv4" })
        && text(given, "provisionable_by").is_none_or(|owner| usable_by(network, &owner))
        && text(given, "owner_uuid").is_none_or(|owner| network.owner_uuids.contains(&owner))
}
