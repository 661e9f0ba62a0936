// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI's records of compute nodes: the fields this project reads, and all others as they came.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::Call;

/// A compute node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The node.
    pub uuid: String,
    /// `running`, `unknown` or `rebooting`; an open set of words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Its host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Whether it was set up: only such a node has VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<bool>,
    /// Whether the allocator passes it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<bool>,
    /// The platform it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_platform: Option<String>,
    /// When the node last sent a heartbeat to this process of CNAPI, in ISO 8601. None since the process was started is
    /// null; a node of which only the sysinfo was heard may have 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<String>,
    /// What the node said of itself; absent from a list that did not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysinfo: Option<Map<String, Value>>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Server {
    /// Its address on the admin network, as [`admin_ip`] finds it in its sysinfo.
    pub fn admin_ip(&self) -> Option<IpAddr> {
        admin_ip(self.sysinfo.as_ref()?)
    }

    /// The NIC tags it offers, overlay tags included, each once.
    pub fn nic_tags(&self) -> Vec<&str> {
        let mut tags: Vec<&str> = Vec::new();
        for nic in self.nics() {
            for tag in names(nic, "NIC Names").chain(names(nic, "Overlay Nic Tags")) {
                if !tags.contains(&tag) {
                    tags.push(tag);
                }
            }
        }
        tags
    }

    /// A text of its sysinfo, as `CPU Type` or `Live Image`.
    pub fn sysinfo_text(&self, name: &str) -> Option<&str> {
        self.sysinfo.as_ref()?.get(name)?.as_str()
    }

    fn nics(&self) -> impl Iterator<Item = &Value> {
        self.sysinfo.iter().flat_map(nics)
    }
}

/// Returns the address on the admin network of a node with this sysinfo: `Admin IP` if it is an address, else that of
/// a NIC with the tag that `Admin NIC Tag` names, else of one with the tag `admin`. A node's agents listen on it, and
/// all others look for them there.
pub fn admin_ip(sysinfo: &Map<String, Value>) -> Option<IpAddr> {
    let address = |text: &Value| text.as_str().and_then(|text| text.parse().ok());
    let tagged = |tag: &str| {
        let is_tagged = |nic: &&Value| names(nic, "NIC Names").any(|name| name == tag);
        nics(sysinfo).filter(is_tagged).find_map(|nic| address(&nic["ip4addr"]))
    };
    let named = || sysinfo.get("Admin NIC Tag")?.as_str().and_then(tagged);
    sysinfo.get("Admin IP").and_then(address).or_else(named).or_else(|| tagged("admin"))
}

fn nics(sysinfo: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let kinds = ["Network Interfaces", "Virtual Network Interfaces"];
    let of_kind = kinds.into_iter().filter_map(|kind| sysinfo.get(kind)?.as_object());
    of_kind.flat_map(|nics| nics.values())
}

fn names<'a>(nic: &'a Value, list: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    nic[list].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Which nodes to list. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerQuery {
    /// These nodes only; all where it is empty.
    pub uuids: Vec<String>,
    /// Only those that were set up, or were not.
    pub setup: Option<bool>,
    /// Whether each record has its sysinfo.
    pub sysinfo: bool,
    /// Whether each record has its agents.
    pub agents: bool,
}

impl ServerQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        let parts = [(self.sysinfo, "sysinfo"), (self.agents, "agents")];
        let extras = parts.iter().filter(|(wanted, _)| *wanted).map(|(_, part)| *part);
        let extras = extras.collect::<Vec<_>>().join(",");
        call.query_list("uuids", &self.uuids)
            .query_opt("setup", self.setup)
            .query_opt("extras", Some(extras).filter(|it| !it.is_empty()))
    }
}

/// Where a VM may be placed: the body of `POST /allocate`. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Placement {
    /// The VM as VMAPI would create it: sizes, owner, `networks`, `affinity`, `internal_metadata`.
    pub vm: Map<String, Value>,
    /// Its image, as IMGAPI has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Map<String, Value>>,
    /// Its package, as PAPI has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<Map<String, Value>>,
    /// The NIC tags it needs.
    pub nic_tags: Vec<String>,
    /// The same, one list per NIC: any tag of the list will do.
    pub nic_tag_requirements: Vec<Vec<String>>,
    /// The nodes to choose from; all where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
}

/// The node that CNAPI chose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// The node, with its sysinfo.
    pub server: Server,
    /// How the choice was made: the allocator's steps, with what each left.
    #[serde(default)]
    pub steps: Vec<Value>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_admin_address_is_found_by_the_deployed_rule() {
        let nic = |tag: &str, ip: &str| json!({"NIC Names": ["external", tag], "ip4addr": ip});
        for (what, sysinfo, want) in [
            (
                "a tag alone",
                json!({"Network Interfaces": {"e0": nic("admin", "10.0.0.1")}}),
                Some("10.0.0.1"),
            ),
            (
                "both, and the address goes before",
                json!({"Admin IP": "10.0.0.2", "Admin NIC Tag": "admin",
                    "Network Interfaces": {"e0": nic("admin", "10.0.0.1")}}),
                Some("10.0.0.2"),
            ),
            (
                "a rack's tag, and no address",
                json!({"Admin NIC Tag": "admin_rack_1", "Network Interfaces": {"e0": nic("admin_rack_1", "10.0.0.3")}}),
                Some("10.0.0.3"),
            ),
            (
                "a word for the address",
                json!({"Admin IP": "dhcp", "Admin NIC Tag": "admin_rack_1", "Network Interfaces":
                    {"e0": nic("admin", "10.0.0.1"), "e1": nic("admin_rack_1", "10.0.0.3")}}),
                Some("10.0.0.3"),
            ),
            (
                "a tag that no NIC has",
                json!({"Admin IP": "", "Admin NIC Tag": "rack", "Network Interfaces": {"e0": nic("admin", "10.0.0.1")}}),
                Some("10.0.0.1"),
            ),
            (
                "an aggregation, of whose links none has an address",
                json!({"Admin IP": "dhcp", "Link Aggregations": {"aggr0": {"Interfaces": ["e0", "e1"]}},
                    "Network Interfaces": {"aggr0": nic("admin", "10.0.0.4"), "e0": nic("admin", ""), "e1": {}}}),
                Some("10.0.0.4"),
            ),
            (
                "a VNIC",
                json!({"Network Interfaces": {"e0": {"NIC Names": []}},
                    "Virtual Network Interfaces": {"admin0": nic("admin", "10.0.0.5")}}),
                Some("10.0.0.5"),
            ),
            ("of the sixth version", json!({"Admin IP": "fd00::1"}), Some("fd00::1")),
            (
                "none",
                json!({"Admin IP": "dhcp", "Network Interfaces": {"e0": nic("external", "10.0.0.1")}}),
                None,
            ),
            (
                "a lease that did not come",
                json!({"Network Interfaces": {"e0": nic("admin", "dhcp")}}),
                None,
            ),
            (
                "odd types",
                json!({"Admin IP": 7, "Admin NIC Tag": [], "Network Interfaces": [1]}),
                None,
            ),
        ] {
            let found = admin_ip(sysinfo.as_object().unwrap());
            assert_eq!(found.map(|ip| ip.to_string()).as_deref(), want, "{what}");
        }
    }
}
