// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The protocol of migration-service and the migration-agents: JSON over HTTP on the admin network.
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `POST /observe` | [`Observe`] | [`Looked`]: [`Observed`], after a reading that began after the request, or that it goes on |
//! | `POST /orders` | [`Order`] | [`Doing`]; an order that is not done within `wait_ms` goes on |
//! | `POST /received` | [`Received`] | [`Datasets`]: agent to agent, what the receiver has |
//! | `POST /clear` | [`Clear`] | agent to agent, what must go from the receiver before a stream |
//! | `POST /streams` | [`Offer`] | [`Accepted`]: agent to agent, before each stream |
//! | `GET /node` | | [`Node`] |
//! | `GET /vms/UUID` | | the VM's object |
//! | `GET /vms/UUID/size` | | [`Size`] |
//! | `GET /vms/UUID/in-the-way` | | the names of datasets that a copy of the VM would meet |
//! | `GET /vms/UUID/datasets` | | [`Datasets`] |
//! | `GET /migrations` | | [`Open`]s: the migrations that are open on the node |
//! | `GET /copies` | | [`Rest`]s: what migrations left on the node |
//! | `PUT /rate` | [`Rate`] | |
//! | `POST /trust/news` | | |
//!
//! What volapi asks is in [`sdc_clients::snapshots`].
//!
//! All of it goes over mutual TLS (the crate `trust`): an agent executes orders of
//! migration-service alone, by volapi as to snapshots, and takes offers only from the node that its order names; an
//! answer is a node's own. An order, an observation and an offer carry the
//! record's id and revision; an agent that received a higher revision of that record, or the same one with another
//! nonce, answers 409 `OldOrder`, also after its restart; to anything but an observation and `Over` of a migration that
//! is over, it answers 409 `MigrationOver`; for a copy that waits for the service's answer whether it was replaced, 409
//! `CopyWaits`.
//!
//! An agent asks the service for [`Replaced`] by `GET /agents/CN/replaced`, for its own node alone, before the zones of
//! a node boot that has open migrations.
//!
//! An agent does one order of a migration at a time. The same order again joins the one that runs, and at the same
//! revision returns how it ended; another one stops it first. An agent that receives does the same with its streams:
//! an order other than the one that they belong to ends them.

/// The code for a copy that waits.
pub const WAITS: &str = "CopyWaits";

mod answers;

mod orders;

pub use answers::{
    Datasets, Doing, Failure, Looked, Node, Observed, Open, Progress, Replaced, Rest, Runs, Size,
    State, Working,
};
pub use orders::{
    About, Accepted, Clear, Gone, Observe, Offer, Order, Properties, Rate, Received, What, Whole,
};
