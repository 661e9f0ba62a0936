// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Stored records as the JSON NAPI answers with, keys in its order.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::eras::Era;
use super::errors::ApiError;
use super::mac;
use super::rows::{FLAGS, IpRow, NetworkRow, NicRow};
use super::store::World;

fn iso(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map(|t| format!("{t:.3}")).unwrap_or_default()
}

impl World {
    /// A NIC that was asked for; one whose network is gone cannot be shown.
    pub(super) fn shown(&self, nic: &NicRow) -> Result<Value, ApiError> {
        if self.has_lost_network(nic) {
            return Err(ApiError::Plain(500, "InternalError", "Internal error".to_owned()));
        }
        Ok(self.nic_json(nic))
    }

    /// Whether the network of a NIC is gone.
    pub(super) fn has_lost_network(&self, nic: &NicRow) -> bool {
        nic.address.as_ref().is_some_and(|(network, _)| !self.networks.contains_key(network))
    }

    /// A NIC with what its network adds.
    pub(super) fn nic_json(&self, nic: &NicRow) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| {
            out.insert(name.to_owned(), value);
        };
        put("belongs_to_type", json!(nic.belongs_to_type));
        put("belongs_to_uuid", json!(nic.belongs_to_uuid));
        put("mac", json!(mac::print(nic.mac)));
        put("owner_uuid", json!(nic.owner_uuid));
        put("primary", json!(nic.primary));
        put("state", json!(nic.state));
        if self.era.has_timestamps() {
            put("created_timestamp", json!(iso(nic.created)));
            put("modified_timestamp", json!(iso(nic.modified)));
        }
        let network =
            nic.address.as_ref().and_then(|(uuid, ip)| Some((self.networks.get(uuid)?, ip)));
        if let Some((network, ip)) = network {
            put("ip", json!(ip));
            if network.vnet.is_some() {
                put("fabric", json!(true));
            }
            if let Some(gateway) = &network.gateway {
                put("gateway", json!(gateway));
            }
            if network.vnet.is_some() {
                put("gateway_provisioned", json!(false));
                put("internet_nat", json!(true));
            }
            put("mtu", json!(network.mtu));
            put("netmask", json!(network.subnet.netmask()));
            let tag = nic.nic_tag.as_ref().unwrap_or(&network.nic_tag);
            match network.vnet {
                Some(vnet) => put("nic_tag", json!(format!("{tag}/{vnet}"))),
                None => put("nic_tag", json!(tag)),
            }
            put("resolvers", json!(network.resolvers));
            let routes = (!network.routes.is_empty()).then(|| json!(network.routes));
            if self.era.old_platform() {
                if let Some(routes) = routes {
                    put("routes", routes);
                }
                put("vlan_id", json!(network.vlan_id));
            } else {
                put("vlan_id", json!(network.vlan_id));
                if let Some(routes) = routes {
                    put("routes", routes);
                }
            }
            put("network_uuid", json!(network.uuid));
        }
        if nic.cn_in_array {
            put("cn_uuid", json!(nic.cn_uuids));
        } else if let Some(cn) = nic.cn_uuids.first() {
            put("cn_uuid", json!(cn));
        }
        if let Some(model) = &nic.model {
            put("model", json!(model));
        }
        if let (None, Some(tag)) = (&network, &nic.nic_tag) {
            put("nic_tag", json!(tag));
        }
        if !nic.nic_tags_provided.is_empty() {
            put("nic_tags_provided", json!(nic.nic_tags_provided));
        }
        for (flag, _) in FLAGS.iter().zip(nic.flags).filter(|(_, set)| *set) {
            put(flag, json!(true));
        }
        Value::Object(out)
    }
}

/// A network.
pub(super) fn network_json(network: &NetworkRow, era: Era) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    if era != Era::Old2015 {
        put("family", json!(if network.subnet.is_v6() { "ipv6" } else { "ipv4" }));
    }
    put("mtu", json!(network.mtu));
    put("nic_tag", json!(network.nic_tag));
    put("name", json!(network.name));
    put("provision_end_ip", json!(network.end));
    put("provision_start_ip", json!(network.start));
    if era == Era::Old2015 {
        put("vlan_id", json!(network.vlan_id));
    }
    put("subnet", json!(network.subnet.to_string()));
    put("uuid", json!(network.uuid));
    if era != Era::Old2015 {
        put("vlan_id", json!(network.vlan_id));
    }
    if let Some(vnet) = network.vnet {
        put("fabric", json!(true));
        put("vnet_id", json!(vnet));
        put("internet_nat", json!(true));
        put("gateway_provisioned", json!(false));
    }
    put("resolvers", json!(network.resolvers));
    if let Some(gateway) = &network.gateway {
        put("gateway", json!(gateway));
    }
    if !network.routes.is_empty() {
        put("routes", json!(network.routes));
    }
    if let Some(description) = &network.description {
        put("description", json!(description));
    }
    if !network.owner_uuids.is_empty() {
        put("owner_uuids", json!(network.owner_uuids));
    }
    if !network.subnet.is_v6() {
        put("netmask", json!(network.subnet.netmask()));
    }
    Value::Object(out)
}

/// An address; one that was never used is free.
pub(super) fn ip_json(network: &str, ip: IpAddr, row: &IpRow) -> Value {
    let mut out = Map::new();
    out.insert("ip".to_owned(), json!(ip));
    out.insert("network_uuid".to_owned(), json!(network));
    out.insert("reserved".to_owned(), json!(row.reserved));
    out.insert("free".to_owned(), json!(row.is_free()));
    for (name, value) in [
        ("belongs_to_type", &row.belongs_to_type),
        ("belongs_to_uuid", &row.belongs_to_uuid),
        ("owner_uuid", &row.owner_uuid),
    ] {
        if let Some(value) = value {
            out.insert(name.to_owned(), json!(value));
        }
    }
    Value::Object(out)
}
