// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The wall clock of the node: the system's, or one that goes with a simulated clock, so that the
//! times in files and events are the same each time a seed is run.

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// 2026-01-01, where simulated time begins.
const BEGIN: Duration = Duration::from_secs(1_767_225_600);

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// On this thread it is simulated time from now on, which began at `began`; `None`: real time.
pub fn simulate(began: Option<Instant>) {
    BEGAN.set(began);
}

/// Returns true if this thread's time is simulated.
pub(crate) fn is_simulated() -> bool {
    BEGAN.get().is_some()
}

/// Now, by the node's wall clock.
pub fn now() -> Timestamp {
    let simulated = |began: Instant| Timestamp::UNIX_EPOCH + (BEGIN + began.elapsed());
    BEGAN.get().map_or_else(Timestamp::now, simulated)
}
