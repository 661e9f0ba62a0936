// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the programs that move a VM to another compute node agree on: the incremental offline migration of RFD 34.
//! `migration-service` decides and records, `migration-agent` acts on a node, `sdc-migrate` is what people use; each
//! of them uses this crate and none of the others.
//!
//! The modules below are in layer order: each uses only modules listed below it. All but `stream` are pure: no I/O,
//! no tokio, no clock. Time, facts and chance are handed in.

#![forbid(unsafe_code)]

pub mod stream; // a dataset's bytes from one agent to another

pub mod protocol; // what the service and the agents say to each other

pub mod checks; // everything that stands against a begin

pub mod target_payload; // the payload of the hidden target

pub mod bring_over; // what has to be changed on the target so that it has the settings of the source

pub mod carried; // how each key of a VM's object comes to the target

pub mod progress; // marks in the history, bytes of a stream, the events of a watch

pub mod permit; // who may do what

pub mod limits; // how many migrations a node has at once, how often a step is tried, the settings

pub mod schedule; // when a scheduled migration syncs and switches

pub mod estimate; // bytes, seconds and downtime beforehand

pub mod resync; // whether an automatic migration syncs once more

pub mod sync_plan; // datasets, snapshots of both sides, tokens → the streams of one sync

pub mod properties; // which properties of a dataset go from node to node

pub mod evacuation; // what an evacuation does with each VM of a node

pub mod need; // what a person has to do something about

pub mod downtime; // how long a VM is down while it is switched or rolled back

pub mod machine; // which action is taken when, and what its next step is

#[cfg(any(test, feature = "samples"))]
pub mod samples; // a record for tests

pub mod record; // the migration record, as deployed services store it and as people see it

pub mod dead; // whether a node may be taken for dead by an operator's word

pub mod vm_agent; // which vm-agent keeps the records of a node's VMs

pub mod intent; // what the record has before an order is sent

pub mod time; // points in time as the records spell them
