// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a watcher asks the service to leave out (`?filter=1`).

use crate::http::Call;

/// Fields that a watcher needs itself: whether a VM is hidden, and whether it is another of that name.
const NEEDED: [&str; 2] = ["do_not_inventory", "create_timestamp"];

/// Which VMs a watcher is told of, and which of their fields. Each list that is given has to fit; an empty
/// one is none. The vminfod that ships with SmartOS knows no filters and sends everything.
#[derive(Debug, Clone, Default)]
pub struct Filter(Vec<(&'static str, Vec<String>)>);

impl Filter {
    /// VMs with one of these uuids.
    pub fn uuids(self, uuids: &[&str]) -> Filter {
        self.with("uuid", uuids)
    }

    /// VMs in one of these states of vmadm's.
    pub fn states(self, states: &[&str]) -> Filter {
        self.with("state", states)
    }

    /// VMs of one of these brands.
    pub fn brands(self, brands: &[&str]) -> Filter {
        self.with("brand", brands)
    }

    /// Only these fields, besides the names; a change of none of them is not told.
    pub fn fields(self, fields: &[&str]) -> Filter {
        match fields {
            [] => self,
            fields => self.with("fields", &[fields, &NEEDED].concat()),
        }
    }

    fn with(mut self, key: &'static str, values: &[&str]) -> Filter {
        if !values.is_empty() {
            self.0.push((key, values.iter().map(|value| (*value).to_owned()).collect()));
        }
        self
    }

    /// Returns true if everything passes.
    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds it to the query.
    pub(super) fn on(&self, call: Call) -> Call {
        let call = if self.is_none() { call } else { call.query("filter", 1) };
        self.0.iter().fold(call, |call, (key, values)| call.query_list(key, values))
    }
}
