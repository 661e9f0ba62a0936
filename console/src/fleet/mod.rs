// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The page of the data centre: nodes and VMs from its feed, as they come.
//!
//! Two tasks follow the feed and keep a line of JSON for each node and VM; a browser reads all lines, then each that
//! changes. One that does not keep up is disconnected, and begins anew.

// The start.
mod service;

// The routes.
mod http;

// The tasks that follow the feed.
mod feed;

// The lines, and who reads them.
mod board;

// The configuration file.
mod config;

pub(crate) use config::Config;
pub(crate) use service::serve;
