// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One instance name, as long as something answers under it: connect, listen, and judge when the
//! connection ends. One task and one descriptor each (R13, K9).
//!
//! ```text
//!   Dialing ──connected──► listening ──end of stream──► who is there now?
//!      │                      │  ▲                        │     │      │
//!      │ nobody               │  └──same process, no word─┘     │      │ nobody
//!      ▼                      │        of an end (broken)       │      ▼
//!     done            a new file under the name:        another │   verdict, marker
//!                     does another QEMU greet there?            ▼
//!                       yes: it is the instance now,   verdict without marker,
//!                       the old one only gets a verdict    listening to that one
//! ```
//!
//! A generation is a connection that was greeted, not an inode or a file. A marker is written only for
//! the latest generation of a name, and not if the admin path cleared it meanwhile.

mod others;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::timing::Seldom;
use daemon::{Shutdown, Tasks};
use sdc_clients::Jitter;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Clock;
use crate::config::Limits;
use crate::dial::{Connection, Turn, dial, once};
use crate::ledger::{Ledger, Marker, Record, Source, State};
use crate::marker::{self, Clears, Stamp};
use crate::memory::Memory;
use crate::session::{Session, Stage};
use crate::verdict::{Rule, Verdict};
use others::{Met, SUCCESSOR, greeting, is_older, is_told, rival};

/// A history is saved this long after it changed: most ends follow a change at once and make saving
/// needless.
const KEEP: Duration = Duration::from_millis(20);
/// A process that was this old when it was connected to may have been asked to power off before.
const ATTACHED_LATE: Duration = Duration::from_secs(10);
/// Monitors that are not watched are one log line in this time.
const MUTE_PAUSE: Duration = Duration::from_secs(600);

/// What all monitors share.
#[derive(Debug)]
pub struct Shared {
    pub clock: Clock,
    /// Waits and windows.
    pub limits: Limits,
    /// The rule that decides about markers.
    pub rule: Rule,
    /// Markers cleared by the admin path.
    pub clears: Clears,
    /// Histories kept over a restart.
    pub memory: Memory,
    /// Where verdicts go.
    pub ledger: Ledger,
    /// The tasks of the program.
    pub tasks: Tasks,
    /// Randomness of waits.
    pub jitter: Mutex<Jitter>,
    /// Limits the log lines on monitors that are not watched.
    pub mute: Seldom,
    /// Ends everything.
    pub shutdown: Shutdown,
}

/// What is monitored.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The instance.
    pub name: String,
    pub socket: PathBuf,
    /// Where its verdicts go.
    pub outlet: Outlet,
}

/// Where a seat's verdicts go.
#[derive(Clone, Debug)]
pub enum Outlet {
    /// To the marker beside the socket, and to the ledger.
    Marker,
    /// To the loop that joins them with the zone's facts.
    Zones(mpsc::Sender<(String, Verdict)>),
}

/// A connection from its greeting to its end.
struct Generation {
    connection: Connection,
    session: Session,
    number: u64,
    /// The latest clearing when it began.
    cleared: Stamp,
    /// The name is still its own: its history is saved under it.
    latest: bool,
    /// When its history is to be saved.
    keep_at: Option<Instant>,
}

/// Monitors a name until nothing answers under it. `poke` signals a new file under the name.
pub async fn monitor(shared: Arc<Shared>, seat: Seat, poke: Arc<Notify>) {
    let mut next = None;
    loop {
        let connection = match next.take() {
            Some(connection) => connection,
            None => match shared.dial(&seat, &poke).await {
                Some(connection) => (connection, Session::default()),
                None => return,
            },
        };
        let mut generation = shared.begin(&seat, connection);
        next = loop {
            match shared.listen(&seat, &mut generation, &poke).await {
                Heard::Shutdown => return,
                Heard::Rival(rival) => {
                    generation.latest = false;
                    shared.memory.forget(&seat.name);
                    let outlive = shared.clone().outlive(seat.clone(), generation);
                    shared.tasks.spawn("outlived monitor", outlive);
                    break Some(*rival);
                }
                Heard::End => {}
            }
            match shared.after(&seat, &generation).await {
                After::Same(connection, session) => {
                    shared.resume(&seat, &mut generation, connection, session)
                }
                After::Other(connection, session) => {
                    shared.conclude(&seat, generation, true).await;
                    break Some((connection, session));
                }
                After::Nobody => {
                    shared.conclude(&seat, generation, false).await;
                    break None;
                }
            }
        };
    }
}

enum Heard {
    End,
    Rival(Box<Met>),
    Shutdown,
}

enum After {
    Nobody,
    Same(Connection, Session),
    Other(Connection, Session),
}

impl Shared {
    fn jitter(&self) -> Jitter {
        self.jitter.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }

    /// Connects; gives up at the shutdown.
    async fn dial(&self, seat: &Seat, poke: &Notify) -> Option<Connection> {
        // Both arms are cancel-safe: a connection that is dropped is closed.
        tokio::select! {
            dialed = dial(&seat.socket, self.limits.connect, poke, self.jitter()) => dialed
                .inspect_err(|why| tracing::debug!(instance = seat.name, ?why, "nobody to watch"))
                .ok(),
            () = self.shutdown.wait() => None,
        }
    }

    /// Begins a generation, with the saved history of the same process.
    fn begin(&self, seat: &Seat, (connection, mut session): Met) -> Generation {
        let number = self.ledger.connected(&seat.name, connection.peer.map(|peer| peer.pid));
        let now = self.clock.now();
        let before = connection.peer.and_then(|peer| self.memory.of(&seat.name, peer));
        if let Some(history) = before {
            let heard = std::mem::replace(&mut session.history, history);
            session.history.hole(now);
            session.history.words.join(heard.words);
        } else if is_older(connection.peer, now, ATTACHED_LATE) {
            session.history.hole(now);
        }
        if session.stage == Stage::Watching {
            self.watching(seat, number, &session);
        }
        let cleared = self.clears.latest(&seat.name);
        Generation { connection, session, number, cleared, latest: true, keep_at: None }
    }

    /// Listens until the end of the connection, or until another QEMU has taken the name.
    async fn listen(&self, seat: &Seat, generation: &mut Generation, poke: &Notify) -> Heard {
        let greeted_by = Instant::now() + self.limits.greeting;
        // At most one probe; dropped with its task.
        let mut probe = JoinSet::new();
        loop {
            let waiting = generation.session.stage == Stage::AwaitGreeting;
            let keep_at = generation.keep_at.unwrap_or(greeted_by);
            // All arms are cancel-safe: bytes and pokes stay where they are, the probe's task
            // runs on, timers only observe.
            tokio::select! {
                () = generation.connection.readable() => {
                    if self.read(seat, generation) == Turn::Ended {
                        return Heard::End;
                    }
                }
                () = sleep_until(greeted_by), if waiting && greeted_by > Instant::now() => {
                    self.ledger.edit(&seat.name, generation.number, |it| it.state = State::Queued);
                    self.not_watched(&seat.name);
                }
                () = poke.notified(), if probe.is_empty() => {
                    let (socket, served_by) = (seat.socket.clone(), generation.connection.peer);
                    probe.spawn(rival(socket, served_by, self.clock));
                }
                Some(found) = probe.join_next() => {
                    if let Ok(Some(rival)) = found {
                        return Heard::Rival(Box::new(rival));
                    }
                }
                () = sleep_until(keep_at), if generation.keep_at.is_some() => {
                    self.keep(seat, generation);
                }
                () = self.shutdown.wait() => {
                    self.keep(seat, generation);
                    return Heard::Shutdown;
                }
            }
        }
    }

    /// An instance is watched from now on. One that never greets is no news.
    fn watching(&self, seat: &Seat, generation: u64, session: &Session) {
        tracing::info!(instance = seat.name, generation, "start monitor");
        self.ledger.watching(&seat.name, generation, session.version.as_deref());
    }

    /// Logs that an instance is not watched, once in a while: where one peer is mute many may be.
    fn not_watched(&self, instance: &str) {
        if self.mute.is_due(MUTE_PAUSE) {
            tracing::warn!(
                instance,
                "another client holds its monitor: not watched; `kvmd status` names all such instances"
            );
        }
    }

    /// Saves the history for a later daemon.
    fn keep(&self, seat: &Seat, generation: &mut Generation) {
        let due = generation.keep_at.take().is_some() && generation.latest;
        if due && let Some(peer) = generation.connection.peer {
            self.memory.keep(&seat.name, peer, &generation.session.history);
        }
    }

    /// Reads once, and schedules saving if the history changed.
    fn read(&self, seat: &Seat, generation: &mut Generation) -> Turn {
        let Generation { connection, session, .. } = generation;
        let (stage, history) = (session.stage, session.history.clone());
        let turn = connection.read(|line| {
            if let Err(bad) = session.line(self.clock.now(), &line) {
                self.ledger.count(|counts| counts.bad_lines += 1);
                tracing::debug!(instance = seat.name, error = %bad, "line not understood");
            }
        });
        if session.stage > stage {
            match session.stage {
                Stage::Watching => self.watching(seat, generation.number, session),
                _ => {
                    self.ledger.edit(&seat.name, generation.number, |it| it.state = State::Greeting)
                }
            }
        }
        if session.history != history {
            generation.keep_at.get_or_insert(Instant::now() + KEEP);
        }
        turn
    }

    /// Finds what answers under the name after the connection has ended.
    async fn after(&self, seat: &Seat, generation: &Generation) -> After {
        let Ok(connection) = once(&seat.socket).await else { return After::Nobody };
        let (was, is) = (generation.connection.peer, connection.peer);
        let told_apart = is_told(was) && is_told(is);
        match timeout(SUCCESSOR, greeting(connection, self.clock)).await.ok().flatten() {
            // QEMU does not close a monitor that it goes on serving, unless a command asks for it.
            Some((connection, session))
                if told_apart && was == is && generation.session.history.shutdown.is_none() =>
            {
                After::Same(connection, session)
            }
            Some((connection, session)) => After::Other(connection, session),
            None => After::Nobody,
        }
    }

    /// Continues a generation on a new connection to the same process: no end, no verdict.
    fn resume(
        &self,
        seat: &Seat,
        generation: &mut Generation,
        connection: Connection,
        session: Session,
    ) {
        self.ledger.count(|counts| counts.broken += 1);
        tracing::info!(instance = seat.name, "its monitor was closed and is served again");
        let heard = std::mem::replace(&mut generation.session, session);
        let words = generation.session.history.words;
        generation.session.history = heard.history;
        generation.session.history.words.join(words);
        generation.session.history.hole(self.clock.now());
        generation.connection = connection;
    }

    /// Listens to a QEMU that lost its name to another, for its verdict alone.
    async fn outlive(self: Arc<Self>, seat: Seat, mut generation: Generation) {
        tracing::warn!(instance = seat.name, "another QEMU serves its socket's name");
        match self.listen(&seat, &mut generation, &Notify::new()).await {
            Heard::End => self.conclude(&seat, generation, true).await,
            Heard::Rival(_) | Heard::Shutdown => {}
        }
    }

    /// Publishes the verdict on a generation.
    async fn conclude(&self, seat: &Seat, generation: Generation, superseded: bool) {
        let Generation { connection, session, number, cleared, latest, .. } = generation;
        drop(connection);
        let verdict = session.verdict(self.clock.now(), self.limits.admin_window);
        if latest {
            self.memory.forget(&seat.name);
        }
        self.ledger.gone(&seat.name, number);
        if let Outlet::Zones(zones) = &seat.outlet {
            // The zones' loop has ended only at the shutdown.
            let _at_shutdown = zones.send((seat.name.clone(), verdict)).await;
            return;
        }
        let user = match self.rule {
            Rule::Ganeti => session.user_by_shipped_rule(),
            Rule::Reason => verdict.is_users_wish(),
        };
        let marker = self.mark(seat, user, &cleared, superseded);
        self.ledger.publish(&Record {
            name: seat.name.clone(),
            verdict,
            user,
            rule: self.rule,
            marker,
            source: Source::Qmp,
            generation: number,
        });
    }

    /// Writes or removes the marker (K6): for the latest generation only (R4), and not if the admin path
    /// cleared it (R3).
    fn mark(&self, seat: &Seat, user: bool, cleared: &Stamp, superseded: bool) -> Marker {
        if superseded {
            return Marker::Superseded;
        }
        let path = marker::marker_of(&seat.socket);
        let allowed = || self.clears.allow(&seat.name, cleared, self.limits.clear_window);
        let written = user && allowed();
        let done = if written { marker::write(&path) } else { marker::remove(&path) };
        if let Err(error) = done {
            tracing::warn!(marker = %path.display(), %error, "cannot change a marker");
            return Marker::Failed;
        }
        if written && !allowed() {
            // The admin path cleared it between the check and the write.
            let _removed_by_it = marker::remove(&path);
            return Marker::Cleared;
        }
        match (user, written) {
            (true, true) => Marker::Written,
            (true, false) => Marker::Cleared,
            (false, _) => Marker::Removed,
        }
    }
}
