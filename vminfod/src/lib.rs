// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod: the one consumer of a node's sysevents and the cache of its VM objects (RFD 39).
//!
//! The modules stand in the order of one change, last step first; a module uses only modules below it.

pub mod cli;

pub mod shadow;

pub mod service;

pub mod http;

pub mod converge;

pub mod sweep;

pub mod store;

pub mod config;

pub mod diff;

pub mod vm;

pub mod load;

pub mod dirty;

pub mod sources;

pub mod json;

pub mod commands;

pub mod walk;

pub mod root;

pub mod word;

mod heap;

mod lanes;

pub use service::{Running, ServeError, serve, serve_with};
