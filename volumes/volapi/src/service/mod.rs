// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What volapi does, over its records and the other services: the requests of clients, and what follows from
//! the state of VMs.
//!
//! A create ([`Creates`]) writes the record in state `creating` and has VMAPI make the storage VM; [`Follower`] sees
//! that VM run and makes the volume `ready`. What a process leaves that dies, `tidy` ends.

mod tidy; // what a process left that died, and what did not succeed

mod read; // lists and single volumes

mod parts; // the service: its parts, each of which owns what only it changes

mod snapshots; // snapshots, and the beginning of a roll-back

mod rollbacks; // the steps of a roll-back

mod networks; // a volume gets another network, or loses one

mod create; // POST /volumes

mod update; // POST /volumes/:uuid: names and tags

mod delete; // DELETE /volumes/:uuid

mod packages; // volume packages

mod archive; // what failed long ago

mod references; // references and reservations

mod follow; // what follows from a VM's state: here a volume becomes ready

mod works; // the work of this process; one at a time for each owner and name

mod state; // what the parts share

pub use create::Creates;
pub use follow::{Follower, Trouble};
pub use parts::Service;
pub use state::{Count, Counts, ServiceConfig, Shared};
