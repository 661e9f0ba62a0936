// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI's records of compute nodes: the fields this project reads, and all others as they came.

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
    /// Its address on the admin network: that of the first NIC of its sysinfo that has the tag
    /// `admin` and an address, which agents of other nodes use as well.
    pub fn admin_ip(&self) -> Option<&str> {
        let is_admin = |nic: &&Value| names(nic, "NIC Names").any(|tag| tag == "admin");
        self.nics()
            .filter(is_admin)
            .find_map(|nic| nic["ip4addr"].as_str().filter(|ip| !ip.is_empty()))
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
        let kinds = ["Network Interfaces", "Virtual Network Interfaces"];
        let sysinfo = self.sysinfo.iter();
        sysinfo.flat_map(move |sysinfo| {
            let of_kind = kinds.into_iter().filter_map(|kind| sysinfo.get(kind)?.as_object());
            of_kind.flat_map(|nics| nics.values())
        })
    }
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
}

impl ServerQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.query_list("uuids", &self.uuids)
            .query_opt("setup", self.setup)
            .query_opt("extras", self.sysinfo.then_some("sysinfo"))
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
