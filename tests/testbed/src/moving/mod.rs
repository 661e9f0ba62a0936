// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One VM that moves: what it is, what an operator orders, who looks at its copies all the time, and what has to be
//! true in the end. For runs in one process and for runs of real programs.

pub mod ending; // what has to be true in the end (P14)

pub mod operator; // orders, and the wait for their end

pub mod judge; // what is never to happen (P13)

mod things; // who made what there is

pub use things::MIGRATION;

pub mod subject; // the VM
