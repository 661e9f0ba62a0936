// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state file: what must outlive the process. If it is damaged or of another node, everything may
//! have been hidden.

use std::collections::{BTreeMap, BTreeSet};

use daemon::brake::SavedDay;
use daemon::state_file::{State, WallTime};
use serde::{Deserialize, Serialize};

/// The content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The VMs of which VMAPI knows since they came here.
    #[serde(default)]
    pub told: BTreeSet<String>,
    /// The VMs that left and were not settled, or counted for the brake.
    #[serde(default)]
    pub left: BTreeSet<String>,
    /// Those of them that this agent never saw.
    #[serde(default)]
    pub unseen: BTreeSet<String>,
    /// The VMs that it never saw and reported in the last day, and when.
    #[serde(default)]
    pub strangers: BTreeMap<String, WallTime>,
    /// The VMs of a day ago.
    #[serde(default)]
    pub day: SavedDay,
    /// VMs that are hidden, or were shortly before they went, and when they went; none for those that
    /// were still here when this was written.
    #[serde(default)]
    pub hidden: BTreeMap<String, Option<WallTime>>,
    /// When an earlier file was found damaged.
    #[serde(default)]
    pub lost: Option<WallTime>,
}

impl State for Saved {
    const VERSION: u32 = 1;
    const UNWRITTEN: &str = "a restart would forget which VMs were hidden";

    fn is_same(&self, other: &Self) -> bool {
        (&self.told, &self.left, &self.unseen) == (&other.told, &other.left, &other.unseen)
            && self.day.is_same(&other.day)
            && self.strangers.keys().eq(other.strangers.keys())
            && WallTime::are_all_close(&self.hidden, &other.hidden)
            && WallTime::are_close(self.lost, other.lost)
    }

    fn lost(&self) -> Option<WallTime> {
        self.lost
    }
}
