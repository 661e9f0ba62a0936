// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The engines: one suite that all of them pass (`suite`, `model`), and what dies under each of them.

#![allow(clippy::unwrap_used)] // a test may stop at once

mod suite; // what holds for every engine

mod writes; // writes, batches, leases and limits

mod searches; // searches, pages, indices

mod schemas; // the buckets that the tests use

mod model; // the same as a map, whatever is asked of it

mod embedded; // one file: the suite, kill -9, a full disk

mod lead;
mod memory; // the suite under paused time, lost answers

mod postgres; // the suite, lost replies, a server that is killed, one that fails over
