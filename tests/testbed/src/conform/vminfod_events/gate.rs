// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the operations of one recorded step one moment for the daemon, however busy the machine
//! is: while the gate is closed no command is answered and no file's change is told, so nothing is
//! read that the step has only half done. It decides nothing about what is read afterwards.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use daemon::command::{Input, Program, Running};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, duplex};
use tokio::sync::{mpsc, watch};

/// The keys of the gate's own requests to the file watcher; the daemon's count from 1.
const FIRST_KEY: u64 = 1 << 40;
/// Bytes that either end of a pipe may leave unread.
const UNREAD: usize = 1 << 20;

/// The gate; cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    /// The newest of the gate's own requests that the file watcher has answered.
    answered: watch::Sender<u64>,
    asked: Arc<Mutex<u64>>,
    /// Requests to the file watcher that runs now.
    requests: Arc<Mutex<Option<mpsc::Sender<u64>>>>,
    /// Zones for which zoneadm waits.
    waiting: Arc<Mutex<Vec<String>>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            open: watch::Sender::new(true),
            answered: watch::Sender::new(0),
            asked: Arc::new(Mutex::new(FIRST_KEY)),
            requests: Arc::default(),
            waiting: Arc::default(),
        }
    }
}

impl Gate {
    /// From now on nothing passes.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Lets everything pass again.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// The zones whose reading stands before the gate: it has read nothing yet.
    pub(crate) fn waiting(&self) -> BTreeSet<String> {
        lock(&self.waiting).iter().cloned().collect()
    }

    /// Passes when it is open. The kernel's numbers come last in a reading, so they always pass.
    pub(crate) async fn pass(&self, tool: Program, args: &[String]) {
        if matches!(tool, Program::Kstat | Program::Sysevent | Program::Fswatcher) {
            return;
        }
        let zone = match (tool, args) {
            (Program::Zoneadm, [flag, zone, ..]) if flag == "-z" => Some(zone.clone()),
            _ => None,
        };
        let mut opened = self.open.subscribe();
        if *opened.borrow_and_update() {
            return;
        }
        lock(&self.waiting).extend(zone.clone());
        let _closed_with_the_daemon = opened.wait_for(|open| *open).await;
        let mut waiting = lock(&self.waiting);
        if let Some(at) = waiting.iter().position(|one| Some(one) == zone.as_ref()) {
            waiting.swap_remove(at);
        }
    }

    /// Waits until the file watcher has reported everything that was done to files so far: it
    /// answers STATUS after all events before it.
    pub(crate) async fn hear_all(&self) -> anyhow::Result<()> {
        let key = {
            let mut asked = lock(&self.asked);
            *asked += 1;
            *asked
        };
        let requests = lock(&self.requests).clone().context("no file watcher runs")?;
        let mut answered = self.answered.subscribe();
        requests.send(key).await.context("the file watcher ended")?;
        answered.wait_for(|newest| *newest >= key).await?;
        Ok(())
    }

    /// A file watcher behind the gate: its lines are held while the gate is closed.
    pub(crate) fn guard(&self, helper: Running) -> Running {
        let (near, far) = duplex(UNREAD);
        let (errors, _) = duplex(1);
        let (daemon, requests) = duplex(UNREAD);
        let (barrier, barriers) = mpsc::channel(1);
        *lock(&self.requests) = Some(barrier);
        let gate = self.clone();
        let Running { stdin, stdout, .. } = helper;
        tokio::spawn(async move {
            // Each ends with the pipes of the other side.
            let _ended = tokio::join!(gate.hand_on(stdout, far), ask(requests, barriers, stdin));
        });
        let end = Box::pin(async { 0 });
        Running::new(Box::new(near), Box::new(errors), end).with_stdin(Box::new(daemon))
    }

    async fn hand_on(
        &self,
        helper: impl AsyncRead + Unpin,
        mut daemon: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        let mut lines = BufReader::new(helper).lines();
        let mut opened = self.open.subscribe();
        let mut held: Vec<u8> = Vec::new();
        loop {
            if *opened.borrow_and_update() && !held.is_empty() {
                daemon.write_all(&std::mem::take(&mut held)).await?;
            }
            // Both arms are cancel-safe: a half line stays in the reader, a change stays one.
            tokio::select! {
                line = lines.next_line() => {
                    let Some(line) = line? else { return Ok(()) };
                    let value: Value = serde_json::from_str(&line).unwrap_or_default();
                    match value["key"].as_u64().filter(|key| *key > FIRST_KEY) {
                        Some(key) => drop(self.answered.send_replace(key)),
                        None => held.extend(format!("{line}\n").bytes()),
                    }
                }
                changed = opened.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }
}

/// Passes the daemon's requests on to the helper, and the gate's own.
async fn ask(
    daemon: impl AsyncRead + Unpin,
    mut barriers: mpsc::Receiver<u64>,
    mut helper: Input,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(daemon).lines();
    loop {
        // Both arms are cancel-safe.
        let line = tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => line,
                None => return Ok(()),
            },
            Some(key) = barriers.recv() => format!("{key} STATUS"),
        };
        helper.write_all(format!("{line}\n").as_bytes()).await?;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
