// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rows of the mock: NICs, networks, addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::subnet::Subnet;

/// The flags that are printed only when true, in the order they are printed.
pub(super) const FLAGS: [&str; 6] = [
    "allow_dhcp_spoofing",
    "allow_ip_spoofing",
    "allow_mac_spoofing",
    "allow_restricted_traffic",
    "allow_unfiltered_promisc",
    "underlay",
];

/// A stored NIC.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NicRow {
    pub(super) mac: u64,
    pub(super) belongs_to_type: String,
    pub(super) belongs_to_uuid: String,
    pub(super) owner_uuid: String,
    pub(super) primary: bool,
    pub(super) state: String,
    pub(super) created: i64,
    pub(super) modified: i64,
    /// One, or none; more only where older code has stored them.
    pub(super) cn_uuids: Vec<String>,
    /// They were given, and are shown, as an array.
    pub(super) cn_in_array: bool,
    pub(super) model: Option<String>,
    pub(super) nic_tag: Option<String>,
    pub(super) nic_tags_provided: Vec<String>,
    pub(super) address: Option<(String, IpAddr)>,
    pub(super) flags: [bool; 6],
    pub(super) etag: String,
}

/// A stored network.
#[derive(Debug, Clone)]
pub(super) struct NetworkRow {
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) nic_tag: String,
    pub(super) vlan_id: u16,
    pub(super) subnet: Subnet,
    pub(super) start: IpAddr,
    pub(super) end: IpAddr,
    pub(super) mtu: u32,
    pub(super) gateway: Option<String>,
    pub(super) resolvers: Vec<String>,
    pub(super) routes: Map<String, Value>,
    pub(super) owner_uuids: Vec<String>,
    pub(super) description: Option<String>,
    /// The VNET id, for a fabric network.
    pub(super) vnet: Option<u32>,
    pub(super) ips: BTreeMap<IpAddr, IpRow>,
}

/// A stored address.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct IpRow {
    pub(super) reserved: bool,
    pub(super) belongs_to_type: Option<String>,
    pub(super) belongs_to_uuid: Option<String>,
    pub(super) owner_uuid: Option<String>,
    /// Grows with every change; the address freed first is given out first.
    pub(super) changed: u64,
}

impl IpRow {
    pub(super) fn is_free(&self) -> bool {
        !self.reserved && self.belongs_to_uuid.is_none()
    }
}
