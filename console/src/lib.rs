// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The web page of a compute node, which shows vminfod and the agents as tabs; or that of the data centre, which shows
//! nodes and VMs from its feed, migrations and volumes.
//!
//! console is itself an agent: it reads over HTTP what the other programs say about themselves and
//! changes nothing. A module imports only modules listed below it.
//!
//! | task | does | ends |
//! | --- | --- | --- |
//! | `http` | accepts connections; each event stream that a browser reads holds one to vminfod | at the shutdown |
//! | `vms`, `nodes` | of the data centre: follow the feed, and tell the browsers that are connected | at the shutdown |

#![forbid(unsafe_code)]

// The command line.
pub mod cli;

// The page of the data centre, from its feed.
#[cfg(feature = "fleet")]
mod fleet;

// Binds the port and starts the server.
pub mod service;

// The routes.
mod http;

// Passes requests on to vminfod and the agents.
mod relay;

// The files of the page, embedded.
mod page;

// The configuration file.
pub mod config;

pub use service::{ServeError, beside, serve};
