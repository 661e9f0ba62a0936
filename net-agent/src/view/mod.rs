// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node as vminfod shows it: its VMs and their NICs. Filled by the event stream and by
//! fresh full views. What cannot be read makes a view incomplete, and an incomplete view
//! deletes nothing.

// Blank lines keep the modules in layer order.

mod node;

mod inventory;

mod local;

pub use inventory::Differing;
pub use local::{LocalView, LocalVm, VmState};
pub use node::{Node, ViewError};
