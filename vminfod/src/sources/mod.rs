// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where signals come from: sysevents and file changes.
//!
//! A source only translates "something may have changed" into [`signal::Signal`]s. It never reads
//! state, and everything it could have missed while its helper was down is signalled as stale.

pub mod fswatcher;

pub mod watched;

pub mod sysevent;

pub mod helper;

pub mod inbox;

pub mod signal;
