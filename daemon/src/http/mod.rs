// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! HTTP served by a daemon to its own node: an accept loop over hyper with caps and deadlines, on
//! TCP or on a unix socket, in front of the daemon's axum [`Router`].

pub mod events; // the event streams: a lead of the daemon's own, then its journal

mod server; // the accept loop and what each connection goes through

mod takeover; // connections that leave HTTP

pub mod listeners; // the list of open event streams

mod guard; // which requests are local

mod limits; // caps, deadlines, counters

mod pace; // a rate limit

mod openings; // connections that have proved nothing yet

mod pages; // what the pages of all daemons share

mod reply; // small responses

mod sender; // who asks, through which program

pub mod query; // query strings as Node reads them

mod socket; // a connection's socket with its deadlines

pub mod first_line; // characters in a target that Node's parser takes

mod unix; // unix sockets and their files

mod port; // the TCP port

pub use axum::Router;
pub use axum::body::Body;

pub use self::events::{Gone, Start};
pub use self::first_line::FirstLine;
pub use self::limits::{Counts, Limits};
pub use self::listeners::{Listener, Listeners, Registered};
pub use self::openings::Openings;
pub use self::pages::{
    Table, endpoint, name_ignored, not_allowed, ok, ping, routes, table, with_ping, with_refusals,
    wrong_method,
};
pub use self::port::{ListenError, listen, url_of};
pub use self::reply::{JSON, collect, now_iso, refuse, reply, reply_json};
pub use self::sender::Sender;
pub use self::server::{Acceptor, Secure, Secured, Server, Shown, call};
pub use self::takeover::Takeover;
pub use self::unix::{UnixSocket, bind_unix, private_dir};
