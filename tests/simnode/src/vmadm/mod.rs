// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What vmadm makes of a payload: which it refuses and why, what it drops, adds and derives. Pure: what it
//! asks of the node is in [`Surroundings`]. The recordings of the real one judge it (`conform vmadm-validate`).
//!
//! Where to start: [`create::create`], [`update::update`], [`receive::receive`], [`judge::command`].
//!
//! Modules, highest first; each uses only modules listed below it.

pub mod update; // `vmadm update`

pub mod receive; // `vmadm receive`

pub mod create; // `vmadm create`

pub mod volumes; // the datasets of a VM that vmadm makes before its zone

mod conflicts; // what no two VMs of a node may have

mod routes; // the second pass: routes

pub(crate) mod nics; // the second pass: NICs

pub(crate) mod addresses; // the addresses of a NIC

mod disks; // the second pass: disks and PCI devices

mod storage; // the second pass: record sizes, compression, limits

mod defaults; // what create adds where a payload says nothing

mod docker; // what a docker VM has besides

pub mod memory; // the limits that follow from one another

pub mod judge; // the first pass: three lists

mod images; // what a payload's images say

mod slots; // the PCI slots of a guest

pub(crate) mod forms; // values in the form that vmadm goes on with

pub mod table; // the properties: which brands take them

pub mod kinds; // the values that a property takes

pub mod surroundings; // what vmadm asks of the node

pub use surroundings::{Image, Surroundings, Tag};

#[cfg(test)]
mod tests;
