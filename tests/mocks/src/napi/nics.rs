// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Creating, finding and deleting NICs.

use std::net::IpAddr;

use rand::RngExt;
use serde_json::Value;

use super::eras::Era;
use super::errors::{ApiError, differing, element, missing, with_invalid};
use super::ips::Holder;
use super::mac;
use super::params;
use super::rows::{FLAGS, NicRow};
use super::store::World;
use crate::restify::Params;

const OUI: u64 = 0x90b8_d000_0000;

/// The checked input of a creation or an update; absent keys are `None`.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) belongs_to_type: Option<String>,
    pub(super) belongs_to_uuid: Option<String>,
    pub(super) owner_uuid: Option<String>,
    pub(super) primary: Option<bool>,
    pub(super) state: Option<String>,
    pub(super) cn_uuid: Option<String>,
    pub(super) cn_in_array: bool,
    pub(super) model: Option<String>,
    pub(super) nic_tag: Option<String>,
    pub(super) nic_tags_provided: Option<Vec<String>>,
    pub(super) ip: Option<IpAddr>,
    pub(super) network: Option<String>,
    pub(super) vlan: Option<u16>,
    pub(super) reserved: Option<bool>,
    pub(super) check_owner: bool,
    pub(super) flags: [Option<bool>; 6],
}

impl Input {
    /// The tag that is stored: what follows a slash is an overlay's number.
    pub(super) fn own_tag(&self) -> Option<String> {
        self.nic_tag.as_deref().and_then(|tag| tag.split('/').next()).map(str::to_owned)
    }
}

impl World {
    /// The NIC of a path element.
    pub(super) fn find_nic(&self, text: &str) -> Result<&NicRow, ApiError> {
        let mac =
            mac::parse(text).ok_or_else(|| ApiError::invalid("mac", "invalid MAC address"))?;
        self.nics.get(&mac).ok_or(ApiError::NotFound("nic"))
    }

    fn check_tag(&self, field: &str, value: &Value) -> params::Checked<String> {
        let tag = params::string(field, value)?;
        let (name, vnet) = match tag.split_once('/') {
            Some((name, vnet)) => (name, Some(vnet)),
            None => (tag.as_str(), None),
        };
        if vnet.is_some_and(|v| v.contains('/')) {
            let message = "only one slash is allowed after the tag name";
            return Err(element(field, "InvalidParameter", message));
        }
        if vnet.is_some_and(|v| v.parse::<u32>().map_or(true, |v| v > 0xFF_FFFF)) {
            return Err(element(
                field,
                "InvalidParameter",
                "VNET ID must be a number between 0 and 16777215",
            ));
        }
        if self.tags.contains_key(name) {
            Ok(tag)
        } else {
            Err(element(field, "InvalidParameter", "nic tag does not exist"))
        }
    }

    fn check_tags(&self, field: &str, value: &Value) -> params::Checked<Vec<String>> {
        if value.as_array().is_some_and(Vec::is_empty) || value.as_str() == Some("") {
            return Ok(Vec::new());
        }
        let tags = params::strings(field, value)?;
        let invalid: Vec<String> =
            tags.iter().filter(|tag| !self.tags.contains_key(*tag)).cloned().collect();
        if invalid.is_empty() {
            return Ok(tags);
        }
        let plural =
            if invalid.len() == 1 { "nic tag does not exist" } else { "nic tags do not exist" };
        Err(with_invalid(field, plural, &invalid))
    }

    fn check_network(&self, field: &str, value: &Value) -> params::Checked<String> {
        let bad = |message: &str| Err(element(field, "InvalidParameter", message));
        if value.as_str() == Some("admin") {
            let admin = self.networks.values().find(|n| n.name == "admin");
            return admin.map_or_else(|| bad("network does not exist"), |n| Ok(n.uuid.clone()));
        }
        let uuid = params::uuid(field, value)?;
        if self.pools.contains_key(&uuid) {
            return Ok(uuid);
        }
        match self.networks.get(&uuid) {
            None => bad("network does not exist"),
            Some(network) if network.subnet.is_v6() => {
                bad("The network UUID is valid, but its address family must be IPv4")
            }
            Some(_) => Ok(uuid),
        }
    }

    /// Checks the values of a body; every wrong one is reported.
    pub(super) fn check_input(&self, given: &Params) -> (Input, Vec<Value>) {
        let mut input = Input { check_owner: true, ..Input::default() };
        let mut errors = Vec::new();
        macro_rules! take {
            ($target:expr, $name:literal, $check:expr) => {
                if let Some(value) = given.get($name) {
                    match $check($name, value) {
                        Ok(checked) => $target = checked.into(),
                        Err(error) => errors.push(error),
                    }
                }
            };
        }
        let states = ["provisioning", "stopped", "running"];
        let state_message = if self.era == Era::Old2015 {
            "must be a valid state"
        } else {
            "must be one of: \"provisioning\", \"stopped\", \"running\""
        };
        let kinds = ["other", "server", "zone"];
        let kind_message = "must be one of: \"other\", \"server\", \"zone\"";
        take!(input.belongs_to_type, "belongs_to_type", |f, v| params::one_of(
            f,
            v,
            &kinds,
            kind_message
        ));
        take!(input.belongs_to_uuid, "belongs_to_uuid", params::uuid);
        take!(input.owner_uuid, "owner_uuid", params::uuid);
        take!(input.primary, "primary", params::boolean);
        take!(input.state, "state", |f, v| params::one_of(f, v, &states, state_message));
        take!(input.cn_uuid, "cn_uuid", |f, v: &Value| match v.as_array().map(Vec::as_slice) {
            Some([one]) => params::uuid(f, one),
            _ => params::uuid(f, v),
        });
        input.cn_in_array = given.get("cn_uuid").is_some_and(Value::is_array);
        take!(input.model, "model", params::string);
        take!(input.nic_tag, "nic_tag", |f, v| self.check_tag(f, v));
        take!(input.nic_tags_provided, "nic_tags_provided", |f, v| self.check_tags(f, v));
        take!(input.network, "network_uuid", |f, v| self.check_network(f, v));
        take!(input.vlan, "vlan_id", params::vlan);
        take!(input.reserved, "reserved", params::boolean);
        take!(input.check_owner, "check_owner", params::boolean);
        take!(input.ip, "ip", |f: &str, v: &Value| match v
            .as_str()
            .map(str::parse::<std::net::Ipv4Addr>)
        {
            Some(Ok(ip)) => Ok(IpAddr::V4(ip)),
            _ => Err(element(f, "InvalidParameter", "invalid IP address")),
        });
        for (flag, slot) in FLAGS.iter().zip(input.flags.iter_mut()) {
            if let Some(value) = given.get(*flag) {
                match params::boolean(flag, value) {
                    Ok(checked) => *slot = Some(checked),
                    Err(error) => errors.push(error),
                }
            }
        }
        (input, errors)
    }

    /// Creates a NIC.
    pub(super) fn create_nic(&mut self, given: &Params, now: i64) -> Result<NicRow, ApiError> {
        let (mut input, mut errors) = self.check_input(given);
        for name in ["belongs_to_type", "belongs_to_uuid", "owner_uuid"] {
            if !given.contains_key(name) {
                errors.push(missing(name));
            }
        }
        let mac = match given.get("mac") {
            None => None,
            Some(value) => {
                let parsed = mac::from_value(value);
                if parsed.is_none() {
                    errors.push(element("mac", "InvalidParameter", "invalid MAC address"));
                }
                parsed
            }
        };
        let (Some(kind), Some(belongs), Some(owner), true) = (
            input.belongs_to_type.take(),
            input.belongs_to_uuid.take(),
            input.owner_uuid.take(),
            errors.is_empty(),
        ) else {
            return Err(ApiError::Invalid(errors));
        };
        let flags = input.flags.map(|flag| flag.unwrap_or(false));
        if flags.last() == Some(&true) && kind != "server" {
            return Err(ApiError::invalid("underlay", "Only server NICs can be underlay NICs"));
        }
        let network = self.resolve_network(&input, None)?;
        if let Some(network) = network.as_deref() {
            self.check_use(network, &input, &owner, input.cn_uuid.is_some())?;
        }
        let mac = match mac {
            Some(mac) if self.nics.contains_key(&mac) => {
                return Err(ApiError::Invalid(vec![element("mac", "Duplicate", "Already exists")]));
            }
            Some(mac) => mac,
            None => loop {
                let mac = OUI | u64::from(self.rng.random::<u32>() & 0xFF_FFFF);
                if !self.nics.contains_key(&mac) {
                    break mac;
                }
            },
        };
        let holder = Holder {
            belongs_to_type: kind.clone(),
            belongs_to_uuid: belongs.clone(),
            owner_uuid: owner.clone(),
            reserved: input.reserved,
        };
        let address = match network {
            Some(network) => Some(self.provision(&network, input.ip, &holder)?),
            None => None,
        };
        let nic_tag = match &address {
            // Old code derives the tag from the network when it answers and stores none.
            Some(_) if self.era == Era::Old2015 => None,
            Some((network, _)) => self.networks.get(network).map(|n| n.nic_tag.clone()),
            None => input.own_tag(),
        };
        Ok(self.put_nic(NicRow {
            mac,
            belongs_to_type: kind,
            belongs_to_uuid: belongs,
            owner_uuid: owner,
            primary: input.primary.unwrap_or(false),
            state: input.state.unwrap_or_else(|| "provisioning".to_owned()),
            created: now,
            modified: now,
            cn_uuids: input.cn_uuid.into_iter().collect(),
            cn_in_array: input.cn_in_array,
            model: input.model,
            nic_tag,
            nic_tags_provided: input.nic_tags_provided.unwrap_or_default(),
            address,
            flags,
            etag: String::new(),
        }))
    }

    /// The network (or pool) an input asks for.
    pub(super) fn resolve_network(
        &self,
        input: &Input,
        current: Option<&str>,
    ) -> Result<Option<String>, ApiError> {
        if let Some(uuid) = &input.network {
            self.check_network_fits(uuid, input)?;
        }
        let Some(ip) = input.ip else { return Ok(input.network.clone()) };
        if let Some(uuid) = input.network.as_deref().or(current.filter(|_| input.nic_tag.is_none()))
        {
            let inside = self.networks.get(uuid).is_some_and(|n| n.subnet.contains(ip));
            return if inside {
                Ok(Some(uuid.to_owned()))
            } else {
                Err(ApiError::invalid(
                    "ip",
                    &format!("IP address {ip} is outside the subnet for given network {uuid}"),
                ))
            };
        }
        match (&input.nic_tag, input.vlan) {
            (Some(tag), Some(vlan)) => self.find_network(tag, vlan, ip).map(Some),
            (tag, vlan) => {
                let required = |name| {
                    element(
                        name,
                        "MissingParameter",
                        "required if IP specified but not network_uuid",
                    )
                };
                let mut errors = Vec::new();
                if tag.is_none() {
                    errors.push(required("nic_tag"));
                }
                if vlan.is_none() {
                    errors.push(required("vlan_id"));
                }
                Err(ApiError::Invalid(errors))
            }
        }
    }

    /// Fails if a tag or VLAN is named that is not the network's, or an address of a pool.
    fn check_network_fits(&self, uuid: &str, input: &Input) -> Result<(), ApiError> {
        if self.pools.contains_key(uuid) && input.ip.is_some() {
            return Err(ApiError::invalid("ip", "IP cannot be specified with a network pool"));
        }
        let Some(network) = self.networks.get(uuid) else { return Ok(()) };
        let tag = input.nic_tag.as_deref().and_then(|tag| tag.split('/').next());
        if tag.is_some_and(|tag| tag != network.nic_tag) {
            let tag = tag.unwrap_or_default();
            return Err(differing("nic_tag", tag, &network.nic_tag));
        }
        if let Some(vlan) = input.vlan.filter(|vlan| *vlan != network.vlan_id) {
            return Err(differing("vlan_id", &vlan.to_string(), &network.vlan_id.to_string()));
        }
        Ok(())
    }

    /// Whether the owner may use the network, and a fabric network is given a node.
    pub(super) fn check_use(
        &self,
        network: &str,
        input: &Input,
        owner: &str,
        has_cn: bool,
    ) -> Result<(), ApiError> {
        let Some(row) = self.networks.get(network) else { return Ok(()) };
        if row.vnet.is_some() && !has_cn {
            return Err(ApiError::Invalid(vec![missing("cn_uuid")]));
        }
        let listed = row.owner_uuids.is_empty() || row.owner_uuids.iter().any(|o| o == owner);
        if input.check_owner && !listed && owner != self.admin_uuid {
            return Err(ApiError::invalid("owner_uuid", "network owner_uuids do not match"));
        }
        Ok(())
    }

    /// An address of the network, or of the first network of the pool that has one left.
    pub(super) fn provision(
        &mut self,
        network: &str,
        ip: Option<IpAddr>,
        holder: &Holder,
    ) -> Result<(String, IpAddr), ApiError> {
        let members = match self.pools.get(network) {
            Some((_, members)) => members.clone(),
            None => vec![network.to_owned()],
        };
        let is_pool = self.pools.contains_key(network);
        let mut last = ApiError::SubnetFull(network.to_owned());
        for member in members {
            match self.take_ip(&member, ip, holder) {
                Ok(ip) => return Ok((member, ip)),
                Err(ApiError::SubnetFull(_)) if is_pool => {
                    let full = format!("All networks in pool {network} are full");
                    last = ApiError::invalid("network_uuid", &full);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Deletes the NIC and gives its address back.
    pub(super) fn remove_nic(&mut self, mac: u64) -> Option<NicRow> {
        let row = self.nics.remove(mac)?;
        if let Some((network, ip)) = &row.address {
            self.release_ip(network, *ip, &row.belongs_to_uuid);
        }
        Some(row)
    }
}
