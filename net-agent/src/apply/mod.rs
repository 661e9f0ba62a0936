// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is done about one record. Each write: read the record, ask the pure rules about that copy,
//! take a turn, get a permit, ask the rules again, and send one request with `If-Match`. An outcome
//! that is unknown is read, never resent.

// Blank lines keep the modules in layer order.

mod adopt;

mod delete;

mod upkeep;

mod update;

mod record;

pub(crate) use adopt::adopt;
pub(crate) use delete::{delete, judge};
pub(crate) use record::{Found, ask_vmapi, read};
pub(crate) use upkeep::{keep_up, keep_up_own};
