// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! kvmd: tells who turned a VM off.
//!
//! The modules, in the order of one verdict read backwards; each imports only those below it.

// One blank line each keeps rustfmt from sorting them.

pub mod cli;

pub mod service;

pub mod http;

pub mod metrics;

pub mod zones;

pub mod zone;

pub mod control;

pub mod monitor;

pub mod dial;

pub mod ledger;

pub mod memory;

pub mod marker;

pub mod config;

pub mod needed;

pub mod clock;

pub mod session;

pub mod judge;

pub mod history;

pub mod qmp;

pub mod verdict;
