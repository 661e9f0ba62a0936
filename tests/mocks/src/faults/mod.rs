// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all mock services share: fault rules, the request log, the socket.

mod server; // faults and log around each request of a service

mod record; // the request log

mod http; // the listener, which can also answer with half a body

mod rules; // fault rules as data

pub use http::{Listening, Mock, Reply, Takeover, listen};
pub use record::{Recorder, Seen};
pub use rules::{Action, Faults, Rule, glob};
pub(crate) use server::bad;
pub use server::{Canned, Door, Listed, Server, Service};
