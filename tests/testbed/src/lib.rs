// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The testbed: everything that runs on the simulated node (`simnode`) and the mock services
//! (`mocks`).
//! Where to start: a test of programs makes a [`lab::World`]; `tests/programs/common.rs` has what such tests
//! share. `tests/README.md` lists the runners with their questions and minutes.
//!
//! Modules, highest first; each uses only modules listed below it.

#![forbid(unsafe_code)]

pub mod cli; // the commands of `testbed`

pub mod bench; // speed

pub mod fuzz; // damaged input

pub mod churn; // a node that changes all the time, and three questions about it: storm, chaos, soak

pub mod kills; // migrations of real programs that are killed

pub mod lab; // a small data centre of processes and a story to watch; the base of most end-to-end tests

pub mod swarm; // ten thousand agents, on a simulated clock

pub mod fleet_feed; // the feed of many nodes on real servers that are killed

pub mod conform; // comparison with recordings of the real services

pub mod explore; // whole migrations under every fault, on a simulated clock

pub mod sim; // a data centre under every fault, on a simulated clock

pub mod changes; // random changes of a node, and whether all who look at it agree

pub mod openapi; // the documents of interfaces

pub mod shadow; // two daemons on one node, compared

pub mod volapi; // volapi among stand-ins for the services around it

pub mod client; // a client of vminfod as strict as the deployed ones

pub mod lines; // streams of events

pub mod faults; // faults at points, for every runner that has some

pub mod moving; // one VM that moves, for runs in one process and for runs of programs

pub mod cn; // a compute node in this process, and daemons on it

mod bugs; // deliberate bugs

mod plot; // pictures of series

mod arguments; // the arguments of the commands

mod parallel; // work on many things at once

pub mod place; // where simulated nodes keep their files

pub mod held; // what processes hold

pub mod process; // child processes

pub mod clock; // the simulated clock
