// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The measures of a mass-delete brake: a node that shows much less than it had is not believed. Pure.

/// What a node had, and how much of it is here now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The VMs that it had.
    pub vms: usize,
    /// How many of these VMs are here.
    pub here: usize,
}

impl Reference {
    /// Returns true if at least 90 % of its VMs are here.
    pub fn is_most(self) -> bool {
        self.here * 10 >= self.vms * 9
    }

    /// Returns that fewer than half of its VMs are here, if so.
    pub fn shrunk(self) -> Option<Shrunk> {
        let Self { vms: most, here } = self;
        (here * 2 < most).then_some(Shrunk { here, most })
    }
}

/// The node shows much less than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{here} of the {most} VMs that the node had are here, fewer than half")]
pub struct Shrunk {
    /// The VMs that are here.
    pub here: usize,
    /// The VMs that it had.
    pub most: usize,
}

/// Where there are no more VMs than this there is little to lose, and a service's word is enough.
pub const LITTLE: usize = 3;

/// Returns how many records may go at once where so many are listed.
pub fn allowance(listed: usize) -> usize {
    (listed / 10).max(5)
}
