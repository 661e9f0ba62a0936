// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! migration-service: the record of each migration, and the rounds that carry it on. It stands in front of
//! VMAPI, so that clients of both have one address.
//!
//! The modules below are in layer order: each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // the command line

mod serve; // from the configuration to a running service

pub mod operators; // what operators ask who have proved that they are

pub mod pages; // the status and the metrics

pub mod import; // records of a running VMAPI are taken over

pub mod front; // the routes in front of VMAPI

pub mod runner; // the rounds of the migrations that run

mod verify; // the two copies of a VM, compared

mod adopt; // a record from what the agents have

mod ended; // a record whose migration had ended

mod command; // an action on the record of a VM

mod claims; // what agents have open that the store does not know

mod signs; // the last signs of life of a node

mod placement; // the node for the copy of a VM

mod begin; // what is known before a begin, and the record that it makes

mod action_params; // the parameters of an action

mod config; // the configuration

pub mod state; // what all routes and rounds share

pub mod enrol; // who is let in: authorities, tokens, certificates

mod agents; // the migration-agents of the nodes

mod node_reports; // one recent report of a node for many estimates

mod peers; // the other services of the data centre

pub mod settings; // the settings in the store

pub mod evacuations; // the evacuations that are under way

pub mod records; // the records in the store

pub mod news; // the latest event of each VM, and the leader's heartbeat

pub mod contacts; // when each agent was last in contact

pub mod strangers; // migrations that the store never knew

pub mod ends; // the ends that were replaced

pub mod history; // what has ended

mod params; // the parameters of a request

pub mod through; // who asks, and through which program

mod refused; // replies that are no success

pub mod clock; // the time of day

pub use agents::{Agents, Known};
pub use peers::{Addresses, Peers};
pub use refused::Refused;
pub use state::Service;
