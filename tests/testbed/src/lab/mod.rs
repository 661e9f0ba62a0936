// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lab: a small data centre in one directory and a few processes. A simulated node, vminfod and
//! net-agent as programs, a mock NAPI and VMAPI with records, and a story that is played on them
//! and checked. End-to-end tests use its [`World`] too.

pub mod cli; // `testbed lab`

pub mod tour; // the story, and the checks of its outcome

pub mod seed; // the records of the data centre

pub mod screen; // a line per event and per write

pub mod world; // the node, the mocks, and the daemons as processes

mod config; // the configurations of the daemons

mod ports; // where the daemons listen

mod options; // how a world is made

pub mod tools; // the operator's commands

mod error; // what fails

pub use error::LabError;
pub use options::WorldOptions;
pub use world::World;
