// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rounds of a service against two agents, VMAPI, CNAPI and NAPI in memory, under a paused clock.

#![allow(clippy::unwrap_used)]

mod words;

mod many; // thousands of records that are over

mod older; // a store that is empty, or older than what the agents received

mod liar; // a node that lies in any field

mod replaced; // nodes that were declared dead, and were not

mod silent; // nodes that do not answer

mod cnapi; // what a migration asks of CNAPI

mod placed;

mod clock;

mod postgres;

mod killed;

mod hands;

mod evacuated; // evacuations of a node

mod history;

mod story;

mod routed;

mod fleet;

mod world;

mod centre;

mod tongue; // what an agent answers, and lies

mod node;
