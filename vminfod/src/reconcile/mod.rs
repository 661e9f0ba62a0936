// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop between signals and the store: marks what is stale, reads it, commits what differs.
//!
//! ```text
//!  inbox ─► signals ─► vms (stale parts) ─► queue ────► reading (a task per VM) ─► commit ─► store
//!                        ▲      ▲                          │ failed
//!   sweep, refresh, ─────┘      └──────── back-off ◄───────┘
//!   datasets, sysinfo
//! ```
//!
//! One task owns all of it. A signal that comes while its part is being read marks the part stale
//! again, and it is read again: signals are never held back.
//!
//! Each file below uses only those after it: `run` is the loop; `requests` to `commit` are what it does,
//! as methods of `Reconciler` (`engine`); the rest are the structs that it owns.
//!
//! | task | started by | reads | ends in |
//! | --- | --- | --- | --- |
//! | reading of one VM | the queue | its stale parts | `commit::vm_read` |
//! | dataset | a ZFS event | one dataset | `node::dataset_read` |
//! | snapshots | each refresh | all snapshots | `node::snapshots_read` |
//! | sysinfo | a change of its file | sysinfo | `node::sysinfo_read` |
//! | look | every 10 s; a change of the index; the start of the file watcher | zones, stamps | `node::swept` |
//! | list | `sync=zones`; a request for an unknown name | zones, stamps of their XMLs | `node::zones_listed` |
//! | refresh | every 5 min; lost signals; a request | everything but snapshots | `refreshed::refreshed` |

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

mod listing;

mod sysinfo;

mod datasets;

mod slots;

mod vms;

mod reads;

mod reading;

pub mod asks;

pub mod witness;

pub mod status;

pub use engine::{Reconciler, Seams};
