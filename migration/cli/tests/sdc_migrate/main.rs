// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-migrate` as a program, against a server that plays the recorded exchanges and a small data centre.

#![allow(clippy::unwrap_used)] // a test's helpers are tests, which the lint cannot see

mod actions;
mod evacuation;
mod listed;
mod program;
mod real;
mod service;
mod settings;
mod watched;
