// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line. Started as `vminfo` or `vmadm` (links), it is the read-only part of the shipped
//! tool of that name; else it is `vminfod`, the daemon and its clients.
//!
//! A failure is one line on stderr and an exit status: 2 for the command line and the configuration
//! (96 under SMF), 1 for the rest.

mod args;
mod check;
mod client_config;
mod either;
mod follow;
mod reads;
mod run;
mod serve;
mod show;
mod smf;
pub mod stream;
pub mod supply;
pub mod vmadm;
pub mod vminfo;
mod why;

pub use run::{run, run_with};
pub use serve::Companion;
