// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! net-agent: keeps NAPI's NIC records in step with the node (RFD 58). It reads VMs and NICs, and
//! writes only NIC records.
//!
//! The modules below are in layer order: each uses only modules listed below it. The tasks share
//! the [`parts`], each of which owns its state; a task owns what is local to its loop.
//!
//! | task | owns | is woken by | does |
//! | --- | --- | --- | --- |
//! | events | the watcher of vminfod's stream | the stream | changes the node and the departures, wakes VMs |
//! | comparison | – | every `resync` | compares with a fresh view, as if events had reported it |
//! | worker | the running jobs | a wake, a due time, the end of a job | one job per VM: upkeep, then deletes of what left |
//! | identity | its back-off | every `resync`; sooner until sysinfo names this node | stores the identity |
//! | own-nics | the MACs that are not decided | once, after `server_nic_delay` | claims the node's own records |
//! | pass | the candidates that are not decided | `startup_delay`, `relist`, `resync`, an approval | list, view, backfill, two looks, deletes |
//! | saver | the content last saved | a change of node, departures or brake | writes the state file |
//! | status, control | – | a connection | answers; an approval wakes worker and pass |
//!
//! Every write goes through `permit`: `apply` gets a permit from the gate right before a request.

// Blank lines keep the modules in layer order.

/// The command line.
pub mod cli;

/// The listeners and their routes.
pub mod serve;

/// Answers for the operator that make requests.
mod explain;

/// The content of the pages.
mod report;

/// One agent: clients, parts, tasks.
pub mod agent;

/// The pass task.
mod pass;

/// Candidates that no list shows.
mod unlisted;

/// The task for the node's own NICs.
mod own_nics;

/// The worker task: one job per VM.
mod worker;

/// The comparison task.
mod comparison;

/// The events task.
mod events;

/// From a change of the node to work.
mod changes;

/// The identity task.
mod identity;

/// The task that saves the state file.
mod saver;

/// Reads, checks and writes one record.
mod apply;

/// The parts that the tasks share.
pub mod parts;

/// The checks before each write, and the only way to write.
mod permit;

/// The file of what outlives the process.
pub mod state_file;

/// The VMs that are to be worked on.
mod schedule;

/// The NICs that left the node.
mod departures;

/// The metrics by name.
mod metrics;

/// The states, counters and last plan that the operator sees.
pub mod status;

/// What came of one record.
mod outcome;

/// The rules, pure.
mod plan;

/// The mass-delete brake.
mod brake;

/// NAPI's list of the node's NICs.
mod listing;

/// The budget of requests.
mod pace;

/// The node as vminfod shows it.
mod view;

/// The operator's holds.
pub mod holds;

/// Small files on the disk.
mod disk;

/// The clock, random waits, back-off.
mod timing;

/// The configuration.
pub mod config;
