// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Typed clients for the services that a compute node speaks to: vminfod on
//! the node itself, NAPI, VMAPI and CNAPI in the data centre.
//!
//! This crate knows wire formats, retries and errors. It never learns about
//! zones, files or policy: what to do with an answer is the caller's business.
//!
//! Modules, highest first; each uses only what stands below it.

pub mod vminfod;

pub mod vmapi;

pub mod cnapi;

pub mod napi;

pub mod http;

pub mod retry;

mod jitter;

mod mac;

mod error;

pub use error::{Class, Error, Phase};
pub use http::{Http, Precondition, Versioned};
pub use jitter::Jitter;
pub use mac::{MacAddr, ParseMacError};
