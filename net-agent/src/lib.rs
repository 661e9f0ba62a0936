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

#![forbid(unsafe_code)]

pub mod cli; // the command line

pub mod serve; // the listeners and their routes

mod explain; // answers for the operator that make requests

mod report; // the content of the pages

mod metrics; // the metrics by name

pub mod agent; // one agent: clients, parts, tasks

mod pass; // the pass task

mod unlisted; // candidates that no list shows

mod own_nics; // the task for the node's own NICs

mod worker; // the worker task: one job per VM

mod comparison; // the comparison task

mod events; // the events task

mod changes; // from a change of the node to work

mod saver; // what the state file says

mod moved; // VMs that live on other nodes

mod apply; // reads, checks and writes one record

pub mod parts; // the parts that the tasks share

mod permit; // the checks before each write, and the only way to write

pub mod state_file; // the file of what outlives the process

mod departures; // the NICs that left the node

pub mod status; // the states, counters and last plan that the operator sees

mod refused; // the records that NAPI refused to write

mod outcome; // what came of one record

mod plan; // the rules, pure

mod brake; // the mass-delete brake

mod listing; // NAPI's list of the node's NICs

mod view; // the node as vminfod shows it

pub mod holds; // the operator's holds

pub mod history; // what was written and deleted

pub mod config; // the configuration
