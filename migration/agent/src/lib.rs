// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! migration-agent: does on a compute node what migration-service orders, and moves the data.
//!
//! | task | owns | is woken by | does |
//! | --- | --- | --- | --- |
//! | control | – | a request of a program that may make it | answers; starts and stops orders |
//! | order | the order | an order that differs from the one before | carries it out, once |
//! | data | its places | a connection | takes streams |
//! | stream | `zfs receive` | its connection | feeds what was offered |
//! | holds | – | half an hour | renews net-agent's holds |
//! | waiting | – | ten seconds, while a VM waits | asks whether it was replaced, and boots or hides it |
//! | status, operator | – | a connection | answers |
//!
//! The agent remembers no plan: an order names the goal, the node shows what is, and the state file
//! (`memory`) has what the node does not show. So it can die at any moment.
//!
//! Seams: [`daemon::command::Commands`] (programs), [`wire`] (connections for data), `Transport` (requests), tokio's
//! clock.

#![forbid(unsafe_code)]

// Blank lines keep the modules in layer order.

pub mod cli; // the command line

mod pages; // the listeners for the node itself

mod run; // one agent: parts and tasks

mod metrics; // the metrics by name

mod report; // the content of the status page

mod boot; // a node that comes back

pub mod routes; // the requests that it answers

mod execute; // orders

mod observe; // what is true

mod snapshots; // snapshots of volumes

mod receive; // the receiver of streams

mod sync; // the sender of streams

mod in_the_way; // datasets that no migration has made

mod settled; // the properties of a copy

mod mounts; // where a copy is mounted

mod quotas; // quotas in the way

mod zoned; // what is delegated

mod parts; // what the tasks share

mod listings; // listings that take long

mod looks; // observations that take long

mod failed; // why an order was not done

mod counts; // the orders and refusals that are counted

mod status; // the state of each task

mod work; // one order at a time

mod running; // the programs that run now

mod peer; // other agents

mod memory; // what outlives it

mod node; // VMs of the node

mod vm; // a VM's object, pure

mod zfs; // datasets of the node

mod vm_agents; // which vm-agent the node has

pub mod wire; // connections for data

pub mod config; // the configuration

pub use run::{Agent, Setup, boot as before_zones};
