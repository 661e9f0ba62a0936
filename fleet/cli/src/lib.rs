// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! sdc-fleet: the nodes and VMs of the data centre, from its feed. It also makes the feed's streams, and writes what
//! each key may do.
//!
//! The modules below are in layer order: each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // the command line

mod story; // `story`: one VM's life over its nodes

mod changes; // `changes`: what happened to a VM

mod watch; // `watch`: what happens

mod vms; // `vms` and `vm`

mod nodes; // `nodes`: how each node is

mod setup; // `setup`: makes the streams

mod streams; // `streams`: how the feed itself is

mod filter; // which VMs are meant, pure

mod names; // names of nodes and VMs, pure

pub mod key; // draws keys

pub mod permissions; // what each key may do, pure

mod config; // the configuration
