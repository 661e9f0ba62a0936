// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The I/O of one source each; what the bytes mean is in `vm_model::parse`.

pub mod zoneadm;

pub mod zone_index;

pub mod zone_xmls;

pub mod zone_files;

pub mod stamps;

pub mod datasets;

pub mod kstat;

pub mod sysinfo;
