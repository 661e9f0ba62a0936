// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A deployed client of vminfod, as strict as those on real nodes: it asserts where they assert,
//! and fails where they throw, wait in vain or mistake an event. It knows only the shipped wire
//! format.

pub mod consumers; // mirrors of the node

pub mod tools; // what the deployed tools ask

pub mod stream; // the event stream and its waits

pub mod matching; // which VMs a wait is for

pub mod wire; // HTTP as the deployed client reads it

mod thrown; // what ends it

pub use consumers::{Mirror, ZoneEvents};
pub use stream::{EventStream, Options};
pub use thrown::Thrown;
