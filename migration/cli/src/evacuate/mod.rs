// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `evacuate`: moves all VMs off a node.

// Blank lines keep the modules in layer order.

mod list;

mod run;

mod plan;

pub(super) use list::list;
pub(super) use plan::COLUMNS;
pub(super) use run::{Evacuation, Wanted};
