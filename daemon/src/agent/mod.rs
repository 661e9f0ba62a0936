// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the agents of a node (net-agent, vm-agent) have in common: a configuration that the shipped agent
//! can read too, a loopback port for pages, a unix socket for the operator, one running copy.

mod ask; // what the command line asks a running agent

mod run; // from the command line to a running agent

mod routes; // the listeners, and what their routes share

pub mod hub; // where vminfod is

mod basics; // the part of the configuration that all agents have

pub use ask::{approve_plan, running_plan};
pub use basics::{Basics, FileArgs, Files, Mode, Places, Read};
pub use routes::{approval_json, approve, invalid, listen};
pub use run::{ServeError, check, serve};
