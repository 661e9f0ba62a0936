// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which places of a node can be written, and which are there after a boot: one table.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A compute node of Triton.
    #[default]
    Compute,
    /// The headnode of Triton.
    Headnode,
    /// SmartOS without Triton.
    Standalone,
}

impl NodeKind {
    /// Every kind.
    pub const ALL: [NodeKind; 3] = [NodeKind::Compute, NodeKind::Headnode, NodeKind::Standalone];

    /// Returns true if it belongs to a data centre of Triton.
    pub fn is_triton(self) -> bool {
        self != NodeKind::Standalone
    }
}

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Can be written; after a boot as in the platform image.
    Ramdisk,
    /// Can be written; empty after a boot.
    Temporary,
    /// Read-only; as in the platform image.
    Platform,
    /// Can be written; stays over boots and platform images.
    Kept,
}

const ALWAYS: &[NodeKind] = &NodeKind::ALL;
const WITH_USBKEY: &[NodeKind] = &[NodeKind::Headnode, NodeKind::Standalone];
const STANDALONE: &[NodeKind] = &[NodeKind::Standalone];

/// The folders and files that begin a place, what they are, and on which nodes; the longest one that fits counts.
const PLACES: &[(&str, Place, &[NodeKind])] = &[
    ("/", Place::Ramdisk, ALWAYS),
    ("/usr", Place::Platform, ALWAYS),
    ("/tmp", Place::Temporary, ALWAYS),
    ("/etc/svc/volatile", Place::Temporary, ALWAYS),
    ("/var", Place::Kept, ALWAYS),
    ("/var/run", Place::Temporary, ALWAYS),
    ("/opt", Place::Kept, ALWAYS),
    ("/zones", Place::Kept, ALWAYS),
    ("/etc/zones", Place::Kept, ALWAYS),
    ("/etc/zones/SUNWdefault.xml", Place::Ramdisk, ALWAYS),
    ("/usbkey", Place::Kept, WITH_USBKEY),
    ("/etc/shadow", Place::Kept, STANDALONE),
    ("/etc/ssh", Place::Kept, STANDALONE),
];

/// Returns what a place, an absolute path without `..`, is on such a node.
pub fn place(path: &str, on: NodeKind) -> Place {
    let is_in = |folder: &str| Path::new(path).starts_with(folder);
    let rows = PLACES.iter().filter(|(folder, _, nodes)| is_in(folder) && nodes.contains(&on));
    rows.max_by_key(|(folder, ..)| folder.len()).map_or(Place::Ramdisk, |(_, place, _)| *place)
}

/// Returns true if something below this folder is of another kind than the folder.
pub(crate) fn is_mixed(path: &str, on: NodeKind) -> bool {
    let of = place(path, on);
    let below = |folder: &str| folder != path && Path::new(folder).starts_with(path);
    PLACES.iter().any(|(folder, kind, nodes)| below(folder) && *kind != of && nodes.contains(&on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_the_longest_row_says() {
        use NodeKind::{Compute, Headnode, Standalone};
        for (path, on, is) in [
            ("/", Compute, Place::Ramdisk),
            ("/etc/vminfod.json", Compute, Place::Ramdisk),
            ("/lib/svc/manifest/system/kvmd.xml", Compute, Place::Ramdisk),
            ("/etc/svc/repository.db", Compute, Place::Ramdisk),
            ("/root/.sdc-migrate/key", Headnode, Place::Ramdisk),
            ("/usr/vm/sbin/vminfod", Compute, Place::Platform),
            ("/usrlocal", Compute, Place::Ramdisk),
            ("/usbkey/config", Compute, Place::Ramdisk),
            ("/usbkey/config", Headnode, Place::Kept),
            ("/etc/zones/index", Compute, Place::Kept),
            ("/etc/zones/SUNWdefault.xml", Compute, Place::Ramdisk),
            ("/etc/shadow", Headnode, Place::Ramdisk),
            ("/etc/ssh/host_key", Standalone, Place::Kept),
            ("/var/db/hub", Compute, Place::Kept),
            ("/var/run/x", Compute, Place::Temporary),
            ("/opt/smartdc/agents/bin/net-agent", Compute, Place::Kept),
            ("/opt/custom/smf/hub.xml", Standalone, Place::Kept),
        ] {
            assert_eq!(place(path, on), is, "{path} on {on:?}");
        }
    }
}
