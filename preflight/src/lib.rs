// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Looks, read-only, on a real node or headnode whether what the product believes of it is true.
//!
//! The beliefs are those of the ledger, `docs/contract/beliefs.md`, which is compiled in: what is printed is the
//! ledger's own sentence. A check returns whether its belief holds, is false, or cannot be told here, with what it
//! counted. No finding has a name of a VM, an address or a metadata value in it, so that a report can be sent to
//! others.
//!
//! The modules below are in layer order: each uses only modules listed below it. There are no tasks: the checks run
//! one after another, but for the two that wait for events.

#![forbid(unsafe_code)]

pub mod cli; // the command line

mod report; // what is printed, and what is sent

mod checks; // one module per side of the node

mod place; // where the programs of a node find things, from their configurations

mod finding; // what a check found

mod ledger; // the beliefs
