// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How people call VMs and nodes. Pure.

use std::collections::BTreeMap;

use daemon::cli::hosts::Hosts;
use daemon::cli::screen::visible;

/// The aliases of VMs by uuid, and the host names.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    vms: BTreeMap<String, String>,
    pub hosts: Hosts,
}

impl Names {
    /// Returns those of which there is one.
    pub(super) fn of(named: impl Iterator<Item = (String, String)>, hosts: Hosts) -> Names {
        let named = named.filter(|(_, alias)| !alias.is_empty());
        Names { vms: named.map(|(uuid, alias)| (uuid, visible(&alias))).collect(), hosts }
    }

    /// Returns the alias of a VM, or the beginning of its uuid.
    pub(super) fn vm<'a>(&'a self, uuid: &'a str) -> &'a str {
        self.vms.get(uuid).map_or_else(|| uuid.get(..8).unwrap_or(uuid), String::as_str)
    }
}
