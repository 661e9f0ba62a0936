// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Record and facts → the next step of the running operation.

// Blank lines keep the modules in layer order.

mod abort;

mod rescue;

mod rollback;

mod switch;

mod sync;

mod finalize;

mod begin;

mod restore;

mod stage;

use super::facts::Facts;
use super::next::Next;
use crate::record::{Phase, Record, State};

/// Returns what follows for the running operation of a record. Finalize has no phase of its own: it is
/// what a successful record does next.
pub fn next(record: &Record, facts: &Facts) -> Next {
    let ending = match (record.phase, record.state) {
        _ if record.intent.rescue.is_some() => rescue::next(record, facts),
        (_, State::Successful) => finalize::next(record, facts),
        (Phase::Begin, _) => begin::next(record, facts),
        (Phase::Sync, _) => sync::next(record, facts),
        (Phase::Switch, _) => switch::next(record, facts),
        (Phase::Rollback, _) => rollback::next(record, facts),
        (Phase::Abort, _) => abort::next(record, facts),
    };
    match ending {
        Ok(ending) => Next::End(ending),
        Err(next) => next,
    }
}
