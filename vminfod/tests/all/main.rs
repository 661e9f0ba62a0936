// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All tests of the daemon in one program.

#![allow(clippy::unwrap_used)] // a test may stop at once

#[path = "../common/mod.rs"]
mod common;

mod cli_links;
mod configuration;
mod engine;
mod folds;
mod hostile;
mod http;
mod loaded;
mod openapi;
mod rfd39;
mod serving;
mod stamps;
mod statements;
mod tenants;
