// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The seam to JetStream: five requests. In production they go through `Wire`; [`memory`] is the double.

pub mod memory; // a feed in memory, as unkind as the real one

mod seam; // what an agent asks, and the real feed

pub use seam::{Answer, Feed};
