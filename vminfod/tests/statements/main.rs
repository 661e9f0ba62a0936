// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The statements that deployed clients and users hold vminfod to, one test each: the name of a
//! test carries the number of its statement (`s017_…`) and of the deployed bug that it rules out
//! (`b06`). `CONFORMANCE.md` is the table; the module `table` holds it to the names.

#![allow(clippy::unwrap_used)] // a test may stop at once

#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod changes;
mod files;
mod hour;
mod http;
mod life;
mod repair;
mod sources;
mod status;
mod stream;
mod table;
mod zfs;
