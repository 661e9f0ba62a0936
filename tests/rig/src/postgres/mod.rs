// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A PostgreSQL server of our own, and what stands between it and a store.

#![allow(clippy::unwrap_used)] // a test may stop at once

mod cluster;

mod proxy;

pub use cluster::{Cluster, address};
pub use proxy::{Cut, Proxy};
