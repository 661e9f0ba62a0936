// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The testbed: a simulated compute node, mock services, the conformance runner and the lab.

pub mod bench;
pub mod cli;
pub mod client;
pub mod clock;
pub mod conform;
pub mod fleet;
pub mod fuzz;
pub mod lab;
pub mod process;
pub mod sim;
pub mod soak;
pub mod storm;
