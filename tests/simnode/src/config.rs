// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The place of each property of a VM in the configuration of its zone. No I/O.

pub mod changes; // an update's changes
pub mod read; // a configuration as a VM

mod devices; // disks, PCI devices, file systems
mod nics; // NICs
mod places; // where each property is
mod zone; // new zones

pub use places::{alias, apply};
pub use zone::{installed, is_installed_later, zone_xml};
