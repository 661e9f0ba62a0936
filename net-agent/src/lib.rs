// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! net-agent: keeps NAPI's NIC records in step with the node (RFD 58).
//!
//! The modules, in the order of one change; each imports only those below it.

// One blank line each keeps rustfmt from sorting them.

pub mod cli;

pub mod control;

pub mod pages;

pub mod explain;

pub mod agent;

pub mod pass;

pub mod extra;

pub mod follow;

pub mod lanes;

pub mod apply;

pub mod recall;

pub mod shared;

pub mod memory;

pub mod departed;

pub mod approval;

pub mod metrics;

pub mod status;

pub mod pace;

pub mod plan;

pub mod remote;

pub mod inventory;

pub mod holds;

pub mod config;
