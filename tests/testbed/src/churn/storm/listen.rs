// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Listeners that connect, read, stall, leave and reconnect, and readers of `/vms`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::Shutdown;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::http::Call;
use sdc_clients::{Error, Http};

use crate::changes::history::{History, Listener, State};
use crate::lines::LineStream;

const LINE_CAP: usize = 256 << 20;
/// A line that is due comes within this.
const LIMIT: Duration = Duration::from_secs(60);

/// What all of them share.
#[derive(Clone)]
pub struct Room {
    pub http: Http,
    /// What they saw.
    pub history: Arc<Mutex<History>>,
    pub faults: Arc<Mutex<Vec<String>>>,
    /// What they did.
    pub counts: Arc<Mutex<Counts>>,
    /// Mutations are over: go on until the last event, then end.
    pub last: tokio::sync::watch::Receiver<Option<u64>>,
    /// Ends the rest.
    pub shutdown: Shutdown,
}

/// What the listeners did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections that began with a snapshot.
    pub snapshots: usize,
    /// Connections that carried on.
    pub resumes: usize,
    /// Requests to carry on that were answered with 410.
    pub gone: usize,
    pub lines: usize,
}

impl Room {
    fn fault(&self, who: &str, what: impl std::fmt::Display) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(format!("{who}: {what}"));
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, listener: &mut Listener, resume: bool) -> Result<LineStream, Error> {
        let mut call = Call::get(&["events"]);
        if resume {
            call = call.query("epoch", &listener.epoch).query("since", listener.seq);
        }
        let stream = LineStream::open(&self.http, call).await?;
        listener.connect(resume);
        self.count(|counts| match resume {
            true => counts.resumes += 1,
            false => counts.snapshots += 1,
        });
        Ok(stream)
    }

    /// Takes lines until `enough` says so; says whether the stream can be left.
    async fn follow(
        &self,
        who: &str,
        listener: &mut Listener,
        stream: &mut LineStream,
        mut enough: impl FnMut(u64) -> bool,
    ) -> bool {
        loop {
            let mut last = self.last.clone();
            // All arms are cancel-safe: what was read of a line stays in the stream's buffer.
            let line = tokio::select! {
                line = stream.line() => line,
                _ = last.wait_for(|last| last.is_some_and(|last| listener.seq >= last)) => return true,
                () = self.shutdown.wait() => return true,
                () = tokio::time::sleep(LIMIT) => {
                    // Silence alone is no fault, as long as nothing is owed.
                    let owed = self.history().newest() > listener.seq;
                    if owed {
                        self.fault(who, format!("nothing came after event {}", listener.seq));
                        return false;
                    }
                    continue;
                }
            };
            let line = match line {
                Ok(line) => line,
                Err(what) => {
                    self.fault(who, format!("{what:#}"));
                    return false;
                }
            };
            self.count(|counts| counts.lines += 1);
            let told =
                listener.take(&line).and_then(|digest| self.history().told(listener.seq, digest));
            if let Err(what) = told {
                self.fault(who, what);
                return false;
            }
            if enough(listener.seq) {
                return true;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shutdown.is_triggered() || self.last.borrow().is_some()
    }
}

/// One listener that never leaves before the last event.
pub async fn stay(room: Room) {
    let mut listener = Listener::default();
    match room.open(&mut listener, false).await {
        Ok(mut stream) => {
            // A fault of it is in the list already.
            let _left =
                room.follow("the one that stays", &mut listener, &mut stream, |_| false).await;
        }
        Err(error) => room.fault("the one that stays", error),
    }
}

/// One listener that comes and goes until the last event, then comes once more.
pub async fn come_and_go(room: Room, nth: usize, seed: u64) {
    let who = format!("listener {nth}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut listener = Listener::default();
    loop {
        let resume = !listener.epoch.is_empty() && rng.random_range(0..3_u8) > 0;
        match room.open(&mut listener, resume).await {
            Ok(mut stream) => {
                if rng.random_range(0..4_u8) == 0 {
                    // It stalls: nobody else may notice.
                    tokio::time::sleep(Duration::from_millis(rng.random_range(10..500))).await;
                }
                let mut left: u32 = rng.random_range(1..100);
                let enough = |_| {
                    left -= 1;
                    left == 0
                };
                if !room.follow(&who, &mut listener, &mut stream, enough).await {
                    return;
                }
            }
            Err(error) if error.status() == Some(410) => {
                room.count(|counts| counts.gone += 1);
                listener = Listener::default();
                continue;
            }
            Err(error) => {
                room.fault(&who, error);
                return;
            }
        }
        let last = *room.last.borrow();
        if room.shutdown.is_triggered() || last.is_some_and(|last| listener.seq >= last) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..80))).await;
    }
}

/// Reads `/vms` again and again; every answer must be a state that the listeners had.
pub async fn read(room: Room) {
    while !room.is_over() {
        if let Err(what) = read_once(&room).await {
            room.fault("a reader of /vms", what);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn read_once(room: &Room) -> Result<(), String> {
    let low = room.history().newest();
    let call = Call::get(&["vms"]).body_cap(LINE_CAP);
    let reply = room.http.execute(call).await.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(reply.body()).into_owned();
    let digest = State::of_list(&text)?.digest();
    // A new listener's snapshot is not older than the answer.
    let mut listener = Listener::default();
    let mut stream = room.open(&mut listener, false).await.map_err(|e| e.to_string())?;
    let line = stream.line().await.map_err(|e| format!("{e:#}"))?;
    let now = listener.take(&line)?;
    let mut history = room.history();
    history.told(listener.seq, now)?;
    history.read(low, listener.seq, digest);
    Ok(())
}
