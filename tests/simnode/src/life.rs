// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node's life: which of its places outlive a boot, what SMF knows, and what starts when the node boots.
//!
//! `/` is a ramdisk and `/usr` is read-only; SMF's repository is in the ramdisk. So after a boot SMF knows the
//! services of the platform image and those whose manifests lie in a place that is kept and read, and no others.

pub mod boot; // a boot

pub(crate) mod smf; // `svcs`, `svcadm`, `svcprop` and `svccfg`

pub mod repository; // SMF's repository

pub mod platform; // the services of the platform image

pub mod manifest; // manifests and profiles

pub(crate) mod lofs; // mounts of a file over a file

pub mod ramdisk; // what a boot makes of the places

#[cfg(test)]
mod tests;
