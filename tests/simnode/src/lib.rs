// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A simulated SmartOS compute node: a directory with its files, zones and datasets, and
//! executables that answer as the node's own commands do.
//!
//! All state is in the node's directory, so every process sees the same node. A change is made
//! under the node's lock, and its sysevent is posted before the lock is released: events are in
//! the order of the changes.
//!
//! Where to start: [`Node::create`] makes a node, [`Verbs`] does to its VMs what vmadm does,
//! [`in_process::InProcess`] answers its commands without processes.
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // the commands `cn` and `vm`

pub mod show; // the verbs of `vm`, and their output

pub mod edits; // the smaller verbs of vmadm

pub mod verbs; // what vmadm does, step by step

pub mod wait; // waits for vminfod

pub mod create; // new nodes

pub mod sample; // generated VMs

mod new_vm; // the zone, the datasets and the files of a new VM

mod reprovision; // a new root for a zone

mod around; // what the node says to vmadm

mod protection; // VMs that are not to be deleted

pub mod decorators; // the commands with failures

pub mod in_process; // the commands without processes

pub mod pipes; // `zfs send` and `zfs receive` without processes

pub mod exec; // the executables of the node

pub mod exec_zfs; // `zfs`

mod exec_kstat; // `kstat`

pub mod agents; // apm and what else installs agents

pub mod streams; // `zfs send` and `zfs receive`

pub mod life; // places, SMF, and a boot

pub mod recorded; // commands that print what was recorded

pub mod feeds; // followed sysevent streams without processes

mod zonecfg; // the executable `zonecfg`

mod getopt; // the arguments of a command, and its end

pub mod qemu; // the monitors of a QEMU

pub mod fswatcher; // the platform's file watcher

pub mod zones; // the rules of zones

pub mod sizes; // what datasets take, in bytes

pub mod mounts; // the rules of mounted datasets

pub mod state; // the state directory and its lock

pub mod receive_rules; // what `zfs receive` accepts

pub mod send_plan; // what `zfs send` sends

pub mod dataset_ops; // the rules of `zfs`, on a table

mod holds; // holds of snapshots

mod encryption; // encrypted datasets

pub mod properties; // the rules of properties

pub mod config; // the place of properties in a zone's configuration

pub mod vmadm; // what vmadm makes of a payload

pub mod payload; // VM payloads

pub mod xml; // zone configurations

pub mod sysevent; // events to other processes

pub mod stream; // the format of `zfs send`

pub mod trees; // the contents of datasets

mod checksum; // a checksum

mod names; // the names that zfs takes

pub mod broken; // what is broken until it is cured

pub mod node; // a node: its directory, its description, the paths in it

pub mod datasets; // the table of datasets

pub mod places; // which places can be written, and which outlive a boot

pub mod tap; // events inside this process

pub mod files; // file writes

pub mod clock; // what time it is on the node

pub mod error; // errors

pub mod refusal; // why vmadm refuses a payload

pub use create::CreateOptions;
pub use error::NodeError;
pub use node::{Node, NodeInfo, PLATFORM, TOOLS};
pub use places::{NodeKind, Place};
pub use verbs::Verbs;
pub use wait::Wait;
