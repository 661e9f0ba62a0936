// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The clients against servers: real sockets on loopback where bytes matter,
//! a scripted transport under paused time where waits matter.

#![allow(clippy::unwrap_used)] // a test's helpers are tests, which the lint cannot see

mod broken;
mod cnapi;
mod http;
mod migrations;
mod napi;
mod peers;
mod phases;
mod recorded;
mod retries;
mod script;
mod vmapi;
mod vminfod;
mod watch;
