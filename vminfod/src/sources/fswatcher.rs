// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! File changes by the platform's `fswatcher` helper. The testbed has an executable that answers
//! the same protocol.
//!
//! Requests and lines go both ways at once: writing never waits for reading.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::Shutdown;
use daemon::command::{Commands, Launch, Pipes, Program};
use sdc_clients::Jitter;
use sdc_clients::vminfod::Lines;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use super::helper::{End, Health, READY_LIMIT, supervise};
use super::inbox::Inbox;
use super::watched::{WatchList, Zones};
use crate::node::root::Root;

/// The name in logs and `/status`.
pub const NAME: &str = "files";

/// How often missing zonepaths are requested again.
const ORPHANS: Duration = Duration::from_secs(1);
/// Longest line: a path and little more; the answer to STATUS has all paths.
const LINE_CAP: usize = 64 << 20;

/// The watched files, shared with `/status`.
#[derive(Clone, Debug, Default)]
pub struct Watching(Arc<Mutex<WatchList>>);

impl Watching {
    /// The paths that are watched, and the missing ones; sorted.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        self.lock().presence()
    }

    /// The process id of the helper.
    pub fn pid(&self) -> Option<u32> {
        self.lock().pid()
    }

    fn lock(&self) -> MutexGuard<'_, WatchList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the files of the node and of its zones.
pub struct Watcher {
    /// Where the node's files are.
    pub root: Root,
    /// Starts the helper.
    pub commands: Arc<dyn Commands>,
    /// Which zones there are.
    pub zones: watch::Receiver<Zones>,
    /// Where signals go.
    pub inbox: Arc<Inbox>,
    /// Asks for a new helper.
    pub restart: Arc<Notify>,
    /// Called when the helper becomes ready or ends.
    pub health: Health,
    /// What is watched, for `/status`.
    pub watching: Watching,
    /// Ends the helper.
    pub shutdown: Shutdown,
}

impl Watcher {
    /// Watches until the shutdown; a helper that ends is started again.
    pub async fn run(self, jitter: Jitter) {
        let follow = || self.follow(self.zones.clone());
        supervise(NAME, jitter, &self.health, &self.shutdown, follow).await;
    }

    async fn follow(&self, mut zones: watch::Receiver<Zones>) -> Result<Infallible, End> {
        *self.watching.lock() = WatchList::new(self.root.clone());
        let args = ["-r", "-j"].map(String::from).to_vec();
        let mut child = self.commands.start(Launch::new(Program::Fswatcher, args, Pipes::Both))?;
        let (mut lines, mut chunk) = (Lines::new(LINE_CAP), vec![0; 64 << 10]);
        let mut requests = std::io::Cursor::new(Vec::new());
        let ready_by = Instant::now() + READY_LIMIT;
        let mut is_ready = false;
        let mut orphans = tokio::time::interval(ORPHANS);
        orphans.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if requests.position() == requests.get_ref().len() as u64 {
                requests = std::io::Cursor::new(self.watching.lock().take_requests());
            }
            let is_writing = !requests.get_ref().is_empty();
            // A node at rest is not woken every second.
            let asks_orphans = is_ready && self.watching.lock().may_have_orphans();
            // All arms are cancel-safe: what is not written stays in the buffer, what is not read
            // stays in the pipe, a changed list stays changed. One order, so that a simulated run can be
            // repeated: what comes most often stands last.
            tokio::select! {
                biased;
                written = child.stdin.write_buf(&mut requests), if is_writing => {
                    let _count = written?;
                }
                changed = zones.changed(), if is_ready => {
                    if changed.is_err() {
                        // The daemon is stopping.
                        std::future::pending::<()>().await;
                    }
                    let zones = zones.borrow_and_update().clone();
                    self.watching.lock().want(&zones);
                }
                _ = orphans.tick(), if asks_orphans => self.watching.lock().ask_orphans(),
                () = self.restart.notified() => return Err(End::Missed),
                () = sleep_until(ready_by), if !is_ready => return Err(End::NotReady),
                read = child.stdout.read(&mut chunk) => {
                    let count = read?;
                    if count == 0 {
                        return Err(End::of(&mut child).await);
                    }
                    lines.push(chunk.get(..count).unwrap_or_default());
                    while let Some(line) = lines.next_line()? {
                        let signals = self.watching.lock().line(&line)?;
                        signals.into_iter().for_each(|signal| self.inbox.put(signal));
                    }
                    if !is_ready && self.watching.lock().is_ready() {
                        is_ready = true;
                        zones.mark_changed();
                        (self.health)(true);
                    }
                }
            }
        }
    }
}
