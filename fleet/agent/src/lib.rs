// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! fleet-agent: publishes this node's VMs and how the node is to the feed of the data centre. It reads the node through
//! vminfod alone, and keeps no copy of it: vminfod's ring is the buffer, and what is published is known by the feed.
//!
//! The modules below are in layer order: each uses only modules listed below it.
//!
//! | task | owns | is woken by | does |
//! | --- | --- | --- | --- |
//! | publisher | the place in vminfod's stream, the last message of each subject | the stream | one publish at a time, each acknowledged before the next |
//! | heartbeat | the node's entry in `NODES`, which says who publishes | its interval | asks the node's programs, replaces the entry |
//! | streams | – | its interval, where `streams.make` is set | makes the streams that are missing, gives all servers the same |
//! | identity | its back-off | every `resync` | reads who the node is |
//! | status, control | – | a connection | answers |
//!
//! Nothing on the node waits for this program.

#![forbid(unsafe_code)]

pub mod cli; // the command line

pub mod serve; // the listeners and their routes

mod metrics; // the metrics by name

pub mod agent; // one agent: clients, parts, tasks

mod beat; // the heartbeat task

mod streams; // the task that makes the streams

mod publish; // the publisher task

pub mod parts; // the parts that the tasks share

mod hub; // vminfod's snapshot and its lines

pub mod status; // the states and counters that the operator sees

pub mod feed; // the seam to JetStream

mod programs; // what the node's programs say, in one vocabulary, pure

mod claim; // who may publish the node, pure

mod reduce; // what is to be published, pure

mod redact; // what stays on the node, pure

pub mod machine; // what tells this machine from a copy of it

pub mod config; // the configuration
