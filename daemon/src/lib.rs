// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What every daemon of this project does besides its work. Nothing here knows of zones, NICs or
//! routes.
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // command lines: grammar, lists, progress

pub mod metrics; // /metrics

pub mod http; // HTTP with caps and deadlines, event streams that resume

pub mod journal; // the ring of serialised events

pub mod tasks; // named tasks and the shutdown signal

pub mod lock; // the single-instance lock

pub mod descriptors; // the limit of open files

pub mod config; // configuration files

pub mod exit; // one way to end a program

pub mod log; // bunyan logs

pub mod wall; // the time of day

pub use config::{ConfigError, Fields};
pub use lock::Lock;
pub use tasks::{Shutdown, Tasks};
