// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! volapi among stand-ins for the services around it, in process.

#[cfg(test)]
mod database; // its database is killed at each step of what it does

#[cfg(test)]
mod snapshots; // snapshots and roll-backs, also cut off

#[cfg(test)]
mod many; // many clients at once

#[cfg(test)]
mod heard; // what follows from what is heard of VMs

#[cfg(test)]
mod led; // the lease, and a database that is held up

#[cfg(test)]
mod silent; // storage VMs that run and do not serve

#[cfg(test)]
mod packages; // volume packages, filters, tags, what the operator chooses

#[cfg(test)]
mod networks; // a volume gets another network, or loses one

#[cfg(test)]
mod archived; // what failed long ago

#[cfg(test)]
mod crash; // killed, or left alone, at each step of what it does

#[cfg(test)]
mod asked; // a service that is asked over HTTP, in process

pub mod running; // a service over a store and the stand-ins

pub mod peers; // the services around it

pub mod services; // our mocks of them, in the world of a recording

pub mod cn; // a node with storage VMs

pub mod fuse; // what goes wrong, and at which step
