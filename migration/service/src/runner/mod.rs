// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rounds of the migrations that run: store the revision, observe, decide, act.
//!
//! One service of a data centre does the rounds: the one that holds the lease, whose number fences each write.
//! Nothing is remembered between rounds but the record and what only people see.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod lead;

mod evacuate;

mod timers;

mod drive;

mod returned; // ends that were replaced

mod silent; // nodes whose agents do not answer

mod twins; // two copies that run

mod ask; // what the agents have open

mod put_right; // VMAPI's record of a VM whose old copy was replaced

mod ending;

mod step;

mod create;

mod rehearse; // what a switch needs, while the VM runs

mod addresses;

mod order;

mod tickets;

mod observe;

pub use ask::found_older;
pub use ending::is_busy;
pub use evacuate::release;
pub use lead::{TERM, lead};
pub use returned::{delete, found_returned};
pub use tickets::let_go;
