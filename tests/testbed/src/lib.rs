// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The testbed: everything that runs on the simulated node (`simnode`) and the mock services
//! (`mocks`).
//!
//! | modules | what they are for |
//! | --- | --- |
//! | [`cli`] | the commands of `testbed` |
//! | [`lab`] | a small data centre of processes and a story to watch; also the base of most end-to-end tests |
//! | [`conform`] | comparison with recordings of the real services |
//! | [`sim`], [`fleet`] | a data centre under every fault, and ten thousand agents, on a simulated clock |
//! | [`storm`], [`soak`] | thousands of changes, and what grows over time, in real time |
//! | [`fuzz`], [`mod@bench`] | damaged input, and speed |
//! | [`client`] | a client of vminfod as strict as the deployed ones |
//! | [`process`], [`clock`] | child processes, and the simulated clock |
//!
//! `tests/README.md` lists the runners with their questions and minutes.

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
