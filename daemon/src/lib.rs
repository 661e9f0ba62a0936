// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What every daemon of this project does besides its work, and what each later agent would
//! otherwise copy: configuration, bunyan logs, supervised tasks, the single-instance lock, and
//! one way to end a program.
//!
//! Nothing here knows of zones, NICs or HTTP routes.

pub mod config;
pub mod exit;
pub mod lock;
pub mod log;
pub mod tasks;

pub use config::{ConfigError, Fields};
pub use lock::Lock;
pub use tasks::{Shutdown, Tasks};
