// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What every daemon of this project does besides its work, and what each later agent would
//! otherwise copy: configuration, bunyan logs, supervised tasks, the single-instance lock, one way
//! to end a program, one look of command lines, and HTTP served with caps and deadlines: event
//! streams with resume, metrics.
//!
//! Nothing here knows of zones, NICs or routes.

pub mod cli;
pub mod config;
pub mod descriptors;
pub mod exit;
pub mod http;
pub mod journal;
pub mod lock;
pub mod log;
pub mod metrics;
pub mod tasks;

pub use config::{ConfigError, Fields};
pub use lock::Lock;
pub use tasks::{Shutdown, Tasks};
