// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod: the one consumer of a node's sysevents and the cache of its VM objects (RFD 39).
//!
//! The way of one change: a *source* signals that something may have changed; the *reconciler* marks
//! the stale parts and has them *read*; `vm-model` makes the object and the change records; the *store*
//! commits them; *http* serves them. What an object has and where each field comes from is decided in
//! `vm-model` alone: to add a field, see its `lib.rs`.
//!
//! A module uses only modules below it.
//!
//! | task | owner | wakes on | sends |
//! | --- | --- | --- | --- |
//! | zone events, zfs events | `sources::sysevent` | a line of the helper | signals to the inbox |
//! | files | `sources::fswatcher` | a line of the helper, the list of zones | signals to the inbox |
//! | reconcile | `reconcile::Reconciler` | signals, finished readings, requests, time | commits, the list of zones |
//! | http | `daemon::http::Server` | connections | requests to the reconciler |

#![forbid(unsafe_code)]

/// The command line: `vminfod serve`, the questions, and vmadm's listings.
pub mod cli;

/// Wires sources, reconciler and HTTP together.
pub mod service;

/// The routes of port 9090.
pub mod http;

/// Signals → stale parts → readings → commits.
pub mod reconcile;

/// The one writer: an object, its sequence number and its event become visible in one step.
pub mod store;

/// The configuration file.
pub mod config;

/// Sysevents and file changes → signals.
pub mod sources;

/// Reads the node: its files, its programs.
pub mod node;

pub use service::{Running, ServeError, serve, serve_with};
