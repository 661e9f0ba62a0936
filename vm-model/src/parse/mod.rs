// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One module per source: its bytes → its value. No source converts a value before it must:
//! [`crate::compose`] gives the fields their names and types.

pub mod kstat;

pub mod zoneadm;

pub mod zone_index;

pub mod zone_xml;

mod xml_tag;

pub mod zfs_list;

pub mod mountpoints;

pub mod config_json;

pub mod lastexited;

pub mod receiving;

pub mod sysinfo;

pub mod sysevent;

pub mod zfs_event;

pub mod text;
