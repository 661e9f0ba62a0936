// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The feed of the data centre on NATS JetStream: every change of every VM of every node, the last object of each
//! VM, and how each node is. `fleet-agent` writes it, any client reads it. A program that decides about a VM asks its
//! node or VMAPI instead: the feed is a copy.
//!
//! | stream | subjects | keeps |
//! | --- | --- | --- |
//! | [`CHANGES`] | `vms.CN.VM` | each event with its object, for days |
//! | [`VMS`] | the same, sourced from `CHANGES` by the server | the last message of each VM; a delete stays as a tombstone |
//! | [`NODES`] | `$KV.NODES.CN` | the last heartbeat of each node, for a week |
//!
//! [`Follower`] is the way to read it: a snapshot, then each change once, resumed by stream sequence.

mod beats; // the nodes' heartbeats as they come

mod follow; // snapshot and changes as one stream

mod begin; // how a follower begins

mod event; // what a follower tells

mod mirror; // the copy of the VMs that a follower keeps

mod chain; // whether a node's events came one behind the other

mod forget; // takes a node off the feed that is gone for good

mod usage; // what each node has of the streams' room

mod sweep; // removes old tombstones

mod read; // nodes, and what a stream holds now

mod reading; // one reading of a stream

mod level; // gives the servers of a stream the same

mod replicas; // whether the servers of a stream have the same

mod streams; // makes the streams

mod sourcing; // how far VMS has come, and whether it moves

mod wire; // the requests of the program that publishes

mod access; // where the servers are, and who asks

mod turns; // which server is asked next

mod server; // leaves a server that does not answer

mod link; // the connection, and why there is none

mod node; // what a node says about itself

mod believed; // what is believed of what a node publishes

mod message; // subjects, headers and bodies

mod error; // why the feed did not do what was asked

mod name; // the names of the streams

pub use access::{Access, PATIENCE as ANSWERS_WITHIN};
pub use beats::{Beats, Heard};
pub use believed::is_published;
pub use chain::Chain;
pub use error::FleetError;
pub use event::{FleetEvent, Place};
pub use follow::Follower;
pub use forget::{forget, purge};
pub use level::{level, renew};
pub use link::Link;
pub use message::{Kind, Labels, MARKER, Message, Position, Target, subject, subjects_of};
pub use mirror::{FleetVm, Line, Mirror};
pub use name::{CHANGES, KV_NODES, NODES, VMS};
pub use node::{Claim, NOT_HEARD, Need, Node, Program, What};
pub use read::{Beat, Fleet, Health};
pub use replicas::{COMPARED, Comparison, Differences, compare};
pub use sourcing::{Sourcing, Still, stands_still};
pub use streams::{Made, Shape, again, make, step_down};
pub use sweep::sweep;
pub use turns::Turns;
pub use usage::{Usage, usage};
pub use wire::{Stored, Wire};
