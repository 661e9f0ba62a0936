// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What volapi does, over its records and the other services: the requests of clients, and what follows from
//! the state of VMs.

mod tidy; // what a process left that died, and what did not succeed

mod snapshots; // snapshots and roll-backs

mod look; // what follows from a VM's state

mod archive; // what failed long ago

mod networks; // a volume gets another network, or loses one

mod tags; // a volume gets other tags

mod create; // POST /volumes

mod packages; // volume packages

mod delete; // DELETE /volumes/:uuid

mod rename; // POST /volumes/:uuid

mod references; // references and reservations

mod read; // lists and single volumes

mod tickets; // one at a time for each owner and name

mod state; // what the parts share

pub use look::Trouble;
pub use state::{Count, Counts, Service, Settings};
