// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vm-agent: keeps VMAPI's records of the node's VMs in step with the node. It reads the node through
//! vminfod alone, and writes nothing but VM records.
//!
//! The modules below are in layer order: each uses only modules listed below it. The tasks share the
//! [`parts`], each of which owns its state; a task owns what is local to its loop.
//!
//! | task | owns | is woken by | does |
//! | --- | --- | --- | --- |
//! | events | the watcher of vminfod's stream | the stream | changes what is known of the node, wakes VMs |
//! | worker | the running turns | a wake, a due time, the end of a turn | one turn per VM: read it, read VMAPI, write |
//! | start | its back-off | `startup_delay`, `relist` | VMAPI's list, a synced view, at most one write of many VMs |
//! | identity | its back-off | every `resync`; sooner until sysinfo names this node | stores who the node is |
//! | saver | the content last saved | a change of what is known | writes the state file |
//! | status, control | – | a connection | answers; an approval wakes VMs |
//!
//! A turn carries nothing: it reads the VM afresh, so what it writes is never older than the event that
//! woke it. Turns of several VMs run at once; a start leaves out VMs that have one, and a turn waits while a
//! start writes its VM.

#![forbid(unsafe_code)]

pub mod cli; // the command line

pub mod serve; // the listeners and their routes

mod explain; // what is known of one VM, for the operator

mod report; // the content of the pages

mod metrics; // the metrics by name

pub mod agent; // one agent: clients, parts, tasks

mod worker; // the worker task

mod events; // the events task

mod start; // the start task

mod saver; // what the state file says

mod apply; // reads, judges and writes

pub mod parts; // the parts that the tasks share

mod turns; // who has a turn, and whom a write of many records is about

mod writer; // VMAPI for writes

pub mod state_file; // the content of the file of what outlives the process

pub mod status; // the states, counters and decisions that the operator sees

mod node; // what is known of the node

mod plan; // the rules, pure

pub mod config; // the configuration
