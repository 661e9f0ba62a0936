// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop between signals and the store: marks what is stale, reads it, commits what differs.
//!
//! ```text
//!  inbox ─► signals ─► vms (stale parts) ─► schedule ─► reading (a task per VM) ─► commit ─► store
//!                        ▲      ▲                          │ failed
//!   sweep, refresh, ─────┘      └──────── back-off ◄───────┘
//!   datasets, sysinfo
//! ```
//!
//! One task owns all of it. A signal that comes while its part is being read marks the part stale
//! again, and it is read again: nothing is ever paused.
//!
//! | task | began by | reads | ends in |
//! | --- | --- | --- | --- |
//! | reading of one VM | the schedule | its stale parts | `commit::vm_read` |
//! | dataset | a ZFS event | one dataset | `node::dataset_read` |
//! | snapshots | each refresh | all snapshots | `node::snapshots_read` |
//! | sysinfo | its file changed | sysinfo | `node::sysinfo_read` |
//! | look | every 10 s; the index changed; the file watcher started | zones, stamps | `node::swept` |
//! | refresh | every 5 min; signals lost; a request | everything but snapshots | `refreshed::refreshed` |

mod run;

mod requests;

mod first_load;

mod node;

mod refreshed;

mod signals;

mod commit;

mod engine;

mod tasks;

mod sweep;

mod refresh;

mod sysinfo;

mod datasets;

mod vms;

mod reads;

mod schedule;

mod reading;

pub mod asks;

pub mod status;

pub use engine::{Reconciler, Seams};
