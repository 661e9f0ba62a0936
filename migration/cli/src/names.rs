// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How people call VMs and nodes. Pure.

use daemon::cli::hosts::Hosts;
use daemon::cli::names;

/// The aliases of VMs by uuid, and the host names.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub vms: names::Names,
    pub hosts: Hosts,
}

impl Names {
    /// Returns the alias of a VM, or the beginning of its uuid.
    pub(super) fn vm<'a>(&'a self, uuid: &'a str) -> &'a str {
        self.vms.known(uuid).unwrap_or_else(|| uuid.get(..8).unwrap_or(uuid))
    }
}
