// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! kvmd: tells who turned a VM off. Where to start: `zone` judges by what vminfod says of a zone,
//! [`judge`] by what QEMU says; both are pure. `zones` follows vminfod and asks them.
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // the command line

pub mod service; // wires everything together

pub mod http; // the routes

mod metrics; // /metrics

mod zones; // SmartOS: verdicts from vminfod's stream

mod zone; // what one zone's facts say of its end

mod control; // Ganeti: the directory of monitor sockets

mod monitor; // one instance, from its connection to its verdict

mod dial; // connections to monitors

pub mod ledger; // what is watched, what was decided, the journal

mod memory; // what must survive a restart

pub mod marker; // the marker file, and its clearing by the admin path

pub mod config; // the configuration file

mod needed; // whether the daemon is wanted on this node

mod clock; // time since boot, and processes

pub mod session; // one connection as a state machine without I/O

pub mod judge; // the rule: a history to a verdict

pub mod history; // what a monitor said

pub mod qmp; // one line of QMP

pub mod verdict; // who, how, how sure
