// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The races, R1–R13 of docs/contract/kvmd.md §12: one test at least for each, named by its number.

#![allow(clippy::unwrap_used)] // A test program may stop at once.

#[path = "../common/mod.rs"]
mod common;
mod lives;
mod words;
