// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All tests of the daemon in one program, but those that count what the whole process holds (`descriptors`).

#![allow(clippy::unwrap_used)] // A test program may stop at once.

#[path = "../common/mod.rs"]
mod common;
mod contract;
mod interface;
mod lives;
mod words;
mod zones;
