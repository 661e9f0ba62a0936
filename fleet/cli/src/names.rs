// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Names of nodes and VMs. Pure.

use std::collections::BTreeMap;

use daemon::cli::Usage;
use daemon::cli::names::{Kind, find, find_kind};
use sdc_clients::fleet::{Beat, Mirror};
use sdc_clients::vminfod::VmFields as _;

const NODE: Kind = Kind { one: "node", name: "hostname" };

/// The names of the nodes, as their heartbeats have them.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    pub(crate) fn of(beats: &[Beat]) -> Names {
        let pair = |beat: &Beat| (beat.node.cn_uuid.clone(), beat.node.name().to_owned());
        Names(beats.iter().map(pair).collect())
    }

    /// The node's name; its uuid where it has none.
    pub(crate) fn node<'a>(&'a self, cn: &'a str) -> &'a str {
        self.0.get(cn).map_or(cn, String::as_str)
    }

    /// The node that is meant.
    pub(crate) fn find_node(&self, typed: &str) -> Result<String, Usage> {
        let known: Vec<(&str, &str)> =
            self.0.iter().map(|(uuid, name)| (uuid.as_str(), name.as_str())).collect();
        find_kind(NODE, &known, typed)
    }
}

/// The VM that is meant. A uuid need not be known.
pub(crate) fn find_vm(mirror: &Mirror, typed: &str) -> Result<String, Usage> {
    if uuid::Uuid::try_parse(typed).is_ok() {
        return Ok(sdc_clients::uuid_value(typed));
    }
    let mut known: Vec<(&str, &str)> =
        mirror.vms().map(|vm| (vm.uuid.as_str(), vm.object.alias().unwrap_or_default())).collect();
    known.sort_unstable();
    find(&known, typed)
}
