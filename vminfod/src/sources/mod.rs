// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where signals come from: sysevents and file changes.
//!
//! A source translates what its helper reports into `Signal`s. It reads no state. When its
//! helper was down, it signals everything that it may have missed.

pub mod fswatcher;

pub mod watched;

pub mod sysevent;

pub mod helper;

pub mod inbox;

pub mod signal;
