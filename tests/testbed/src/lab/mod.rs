// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lab: a small data centre in one directory and a few processes. One simulated node or several, with vminfod
//! and its agents as programs, a mock NAPI, VMAPI and CNAPI with records, and a story that is played on them
//! and checked; with several nodes migration-service too, and a VM that moves. End-to-end tests use its [`World`] too.

pub mod cli; // `testbed lab`

pub mod tour; // the story of one node, and the checks of its outcome

pub mod volumes; // the story of a volume, and the services that it needs

pub mod feed; // the feed of the data centre, and the story of a node that dies

mod jobs; // what VMAPI's jobs do for it

mod serving; // the NFS server of its storage VM

mod moves; // the story of two nodes: a VM moves

mod outcome; // what came of a story

pub mod seed; // the records of the data centre

pub mod screen; // a line per event and per write

pub mod control; // what is typed in a lab that is up: svcadm, break, cure

mod broken; // what is broken, and its cure

mod smf; // SMF, done to processes

mod silent; // which nodes are silent

mod boots; // a node loses its power and boots

pub mod world; // the node, the mocks, and the daemons as processes

mod config; // the configurations of the daemons

mod qemus; // the monitors of its kvm VMs

mod daemons; // processes and their logs

mod centre; // the services that all nodes share

mod trust; // who is let in

mod ports; // where the daemons listen

mod options; // how a world is made

pub mod tools; // the operator's commands

pub mod oneachnode; // the headnode's command on a node

pub mod asking; // requests and waits of the lab itself

mod error; // what fails

pub use error::LabError;
pub use options::WorldOptions;
pub use world::World;
