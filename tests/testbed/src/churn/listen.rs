// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Listeners of a node that changes: one that stays, many that come and go with or without a snapshot, and readers of
//! `/vms`. What they see is held against what the others see, where the question asks for that.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::http::Call;
use sdc_clients::{Error, Http};
use tokio::time::{Instant, sleep, sleep_until};

use crate::changes::history::{History, Listener, State};
use crate::lines::LineStream;

const LINE_CAP: usize = 256 << 20;
/// A line that is due comes within this.
const LIMIT: Duration = Duration::from_secs(60);

/// How listeners come and go; times in milliseconds.
pub struct Habits {
    /// They leave after so many lines,
    pub lines: Range<u32>,
    /// or after so long.
    pub stay: Range<u64>,
    /// One visit in so many begins with a stall, in which nothing is read.
    pub stalls: u8,
    pub stall: Range<u64>,
    /// Between two visits.
    pub pause: Range<u64>,
}

/// What all of them share.
pub struct Room {
    /// What they see is compared; else they only cost what listeners cost.
    pub judges: bool,
    pub habits: Habits,
    /// What they saw.
    history: Mutex<History>,
    faults: Mutex<Vec<String>>,
    /// What they did.
    counts: Mutex<Counts>,
    /// Mutations are over: they go on until the last event, then end.
    last: tokio::sync::watch::Sender<Option<u64>>,
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
    /// Connections that failed or were refused otherwise.
    pub failed: usize,
    pub lines: usize,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Room {
    pub fn new(judges: bool, habits: Habits) -> Arc<Self> {
        let (history, faults, counts) = Default::default();
        let (last, _) = tokio::sync::watch::channel(None);
        Arc::new(Self { judges, habits, history, faults, counts, last })
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        locked(&self.history)
    }

    /// Returns the broken promises.
    pub fn faults(&self) -> Vec<String> {
        locked(&self.faults).clone()
    }

    pub fn counts(&self) -> Counts {
        *locked(&self.counts)
    }

    /// Ends each listener when it has seen this event, the last one.
    pub fn close(&self, last: u64) {
        self.last.send_replace(Some(last));
    }

    fn fault(&self, who: &str, what: impl std::fmt::Display) {
        locked(&self.faults).push(format!("{who}: {what}"));
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut locked(&self.counts));
    }

    async fn open(
        &self,
        http: &Http,
        listener: &mut Listener,
        resume: bool,
    ) -> Result<LineStream, Error> {
        let mut call = Call::get(&["events"]);
        if resume {
            call = call.query("epoch", &listener.epoch).query("since", listener.seq);
        }
        let stream = LineStream::open(http, call).await?;
        listener.connect(resume);
        self.count(|counts| match resume {
            true => counts.resumes += 1,
            false => counts.snapshots += 1,
        });
        Ok(stream)
    }

    fn take(&self, listener: &mut Listener, line: &[u8]) -> Result<(), String> {
        if !self.judges {
            listener.pass(line);
            return Ok(());
        }
        let digest = listener.take(line)?;
        self.history().told(listener.seq, digest)
    }

    /// Takes lines until so many have come or the time is over; fails with a broken promise.
    async fn follow(
        &self,
        listener: &mut Listener,
        stream: &mut LineStream,
        (lines, end): (u32, Instant),
    ) -> Result<(), String> {
        let mut last = self.last.subscribe();
        for _ in 0..lines {
            let seq = listener.seq;
            // All arms are cancel-safe: what was read of a line stays in the stream's buffer.
            let line = loop {
                tokio::select! {
                    line = stream.line() => break line.map_err(|what| format!("{what:#}"))?,
                    _ = last.wait_for(|last| last.is_some_and(|last| seq >= last)) => return Ok(()),
                    () = sleep_until(end) => return Ok(()),
                    // Silence alone is no fault, as long as nothing is owed.
                    () = sleep(LIMIT) => if self.judges && self.history().newest() > seq {
                        return Err(format!("nothing came after event {seq}"));
                    },
                }
            };
            self.count(|counts| counts.lines += 1);
            self.take(listener, &line)?;
        }
        Ok(())
    }

    /// Returns true if a listener that knows this event need not come again.
    fn is_over(&self, seq: u64) -> bool {
        self.last.borrow().is_some_and(|last| seq >= last)
    }
}

fn ms(range: &Range<u64>, rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(range.clone()))
}

/// One listener that never leaves before the last event.
pub async fn stay(room: Arc<Room>, http: Http) {
    let mut listener = Listener::default();
    let followed = match room.open(&http, &mut listener, false).await {
        Ok(mut stream) => {
            let end = Instant::now() + Duration::from_hours(24);
            room.follow(&mut listener, &mut stream, (u32::MAX, end)).await
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(what) = followed {
        room.fault("the one that stays", what);
    }
}

/// One listener that comes and goes until the last event, then comes once more.
pub async fn come_and_go(room: Arc<Room>, http: Http, nth: usize, seed: u64) {
    let (who, habits) = (format!("listener {nth}"), &room.habits);
    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(1000 + nth as u64));
    let mut listener = Listener::default();
    loop {
        let resume = !listener.epoch.is_empty() && rng.random_range(0..3_u8) > 0;
        let seen = match room.open(&http, &mut listener, resume).await {
            Ok(mut stream) => {
                let end = Instant::now() + ms(&habits.stay, &mut rng);
                if rng.random_range(0..habits.stalls) == 0 {
                    // Nobody else may notice.
                    sleep(ms(&habits.stall, &mut rng)).await;
                }
                let lines = rng.random_range(habits.lines.clone());
                room.follow(&mut listener, &mut stream, (lines, end)).await
            }
            Err(error) if error.status() == Some(410) => {
                room.count(|counts| counts.gone += 1);
                listener = Listener::default();
                Ok(())
            }
            Err(error) => {
                room.count(|counts| counts.failed += 1);
                listener = Listener::default();
                Err(error.to_string())
            }
        };
        if let (true, Err(what)) = (room.judges, seen) {
            return room.fault(&who, what);
        }
        if room.is_over(listener.seq) {
            return;
        }
        sleep(ms(&habits.pause, &mut rng)).await;
    }
}

/// Reads `/vms` again and again; every answer must be a state that the listeners had.
pub async fn read(room: Arc<Room>, http: Http) {
    while !room.is_over(u64::MAX) {
        if let Err(what) = read_once(&room, &http).await {
            return room.fault("a reader of /vms", what);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn read_once(room: &Room, http: &Http) -> Result<(), String> {
    let low = room.history().newest();
    let call = Call::get(&["vms"]).body_cap(LINE_CAP);
    let reply = http.execute(call).await.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(reply.body()).into_owned();
    let digest = State::of_list(&text)?.digest();
    // A new listener's snapshot is not older than the answer.
    let mut listener = Listener::default();
    let mut stream = room.open(http, &mut listener, false).await.map_err(|e| e.to_string())?;
    let line = stream.line().await.map_err(|e| format!("{e:#}"))?;
    room.take(&mut listener, &line)?;
    room.history().read(low, listener.seq, digest);
    Ok(())
}
