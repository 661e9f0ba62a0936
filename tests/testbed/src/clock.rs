// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated clock: a runtime of one thread whose time stands still while anything can run and
//! jumps to the next timer when nothing can. Nothing on it may wait for a child, a socket or a
//! thread.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// A runtime on a clock of its own. Sockets may be bound on it, for code that must have one.
pub fn paused() -> io::Result<Runtime> {
    // One thread beside it, so that what is handed to it ends in the order in which it began.
    Builder::new_current_thread().enable_all().start_paused(true).max_blocking_threads(1).build()
}
