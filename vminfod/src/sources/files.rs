// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! File changes → signals. What is watched is the same on every system; how is behind [`Watch`].
//!
//! On Linux inotify does it, on illumos the platform's helper. Without either the sweep, which
//! compares the stamps of the same files every few seconds, is the only notice of a file's change.

use std::path::Path;
use std::time::Duration;

use daemon::Shutdown;
use futures_util::future::BoxFuture;

use super::Signal;
use super::watch::{Order, Watch, WatchError};
use super::watch_fswatcher::Fswatcher;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// Which watcher is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The system's own: inotify on Linux, the platform's helper elsewhere.
    Auto,
    /// The platform's helper.
    Fswatcher,
    /// None: the sweep alone finds changes.
    Sweep,
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "fswatcher" => Ok(Self::Fswatcher),
            "sweep" => Ok(Self::Sweep),
            _ => Err("expected auto, fswatcher or sweep".to_owned()),
        }
    }
}

/// The watcher that was chosen; `program` is the helper's place.
pub fn chosen(choice: Choice, program: &Path) -> Box<dyn Watch> {
    let helper = || Box::new(Fswatcher { program: program.to_owned() });
    match choice {
        Choice::Auto if cfg!(target_os = "linux") => native(),
        Choice::Auto | Choice::Fswatcher => helper(),
        Choice::Sweep => Box::new(SweepOnly),
    }
}

/// The watcher of this system that needs no helper.
pub fn native() -> Box<dyn Watch> {
    #[cfg(target_os = "linux")]
    return Box::new(super::watch_linux::Inotify);
    #[cfg(not(target_os = "linux"))]
    return Box::new(SweepOnly);
}

/// No watcher at all: the sweep alone finds changes. Never says that it is in place.
#[derive(Debug, Default)]
pub struct SweepOnly;

impl Watch for SweepOnly {
    fn follow(&self, _: Order) -> BoxFuture<'static, Result<(), WatchError>> {
        tracing::warn!("no file watcher on this system: file changes are found by the sweep");
        Box::pin(std::future::pending())
    }
}

/// Keeps a watcher running until the shutdown; after each failure everything counts as stale.
pub async fn run(watch: Box<dyn Watch>, order: Order, shutdown: Shutdown) {
    let mut pause = FIRST_PAUSE;
    loop {
        // Dropping the watcher at shutdown ends it: that is what is wanted.
        let ended = tokio::select! {
            ended = watch.follow(order.clone()) => ended,
            () = shutdown.wait() => return,
        };
        (order.health)(false);
        let reason = ended.err().map_or_else(|| "ended".to_owned(), |error| error.to_string());
        tracing::warn!(source = "files", %reason, pause_ms = pause.as_millis() as u64, "file watcher ended: starting it anew");
        // Cancel-safe: nothing is held.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wait() => return,
        }
        pause = (pause * 2).min(LAST_PAUSE);
        order.inbox.put(Signal::Everything);
    }
}
