// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub`: the operator's one command. Each verb is a module with its own arguments; what none of them needs from
//! another is not shared.
//!
//! The modules below are in layer order: each uses only modules listed below it. There are no tasks: a verb runs
//! to its end.

#![forbid(unsafe_code)]

pub mod cli; // the command line

mod node; // the hub's vminfod in the place of the platform's

mod ours; // `hub migrate` and the like: the programs of ours that lie beside this one

mod setup; // `hub setup`: services in zones whose data outlives their updates

mod check; // is what the product believes of this node true?

mod place; // where the programs of a node find things, from their configurations

mod name; // the name of the program
