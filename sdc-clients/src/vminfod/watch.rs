// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watcher: snapshot and changes as one endless stream.
//!
//! ```text
//!              ┌──────────────── wait (back-off from 1 s) ◄──────────┐
//!              ▼                                                     │ Lost
//!  start ─► connect ──200──► await first line ──ready──► follow ─────┤
//!            ▲ │                  │ └──resume──► catch up ─┘         │
//!            │ │                  │        end, error, bad line, gap │
//!            │ └── error, 30 s ───┴──────────────────────────────────┘
//!            └─410─ (forget the position)
//! ```
//!
//! After a loss the stream is resumed where it ended (`?epoch=&since=`), so that no event is missed. If
//! the service was restarted, has dropped the events or does not number them, a new snapshot is compared
//! with the known one. A line that cannot be parsed is not requested again.
//!
//! A filtered stream has numbers with gaps, so it is not resumed: the next snapshot is compared.
//!
//! There is no task behind it: [`Watcher::next`] drives the machine and is cancel-safe. A silent stream
//! is a quiet node, not a loss.

use std::collections::VecDeque;
use std::time::Duration;

use ::http::Method;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::Vminfod;
use super::event::WatchEvent;
use super::filter::Filter;
use super::lines::Lines;
use super::mirror::Mirror;
use super::types::{Record, parse_line};
use crate::error::{Class, Error, Phase};
use crate::http::{Call, StreamResponse};
use crate::jitter::Jitter;
use crate::retry::{Backoff, Policy};

/// From the request to the whole first line.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A connection that lived this long after its snapshot ends a run of failures.
const CALM: Duration = Duration::from_secs(30);
/// The service is on this node: asking it is cheap, and news should not wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The first line holds every VM, escaped once more.
const LINE_CAP: usize = 256 << 20;
const PATH: &str = "/events";

enum Step {
    Wait(Instant),
    Connect {
        opening: BoxFuture<'static, Result<StreamResponse, Error>>,
        by: Instant,
    },
    AwaitReady {
        body: Body,
        lines: Lines,
        by: Instant,
    },
    Follow {
        body: Body,
        lines: Lines,
        since: Instant,
        /// After a resume: the view is complete with this event.
        catch_up: Option<u64>,
    },
}

type Body = BoxStream<'static, Result<Bytes, Error>>;

/// Follows one vminfod. Made by [`watch`].
pub struct Watcher {
    client: Vminfod,
    filter: Filter,
    backoff: Backoff,
    step: Step,
    mirror: Mirror,
    /// Events that are not returned yet.
    out: VecDeque<WatchEvent>,
    seq: Option<u64>,
    epoch: Option<String>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match self.step {
            Step::Wait(_) => "wait",
            Step::Connect { .. } => "connect",
            Step::AwaitReady { .. } => "await ready",
            Step::Follow { .. } => "follow",
        };
        f.debug_struct("Watcher")
            .field("step", &step)
            .field("seq", &self.seq)
            .finish_non_exhaustive()
    }
}

/// Watches the VMs of `client`'s node; `jitter` spreads the reconnects.
pub fn watch(client: &Vminfod, jitter: Jitter) -> Watcher {
    watch_filtered(client, Filter::default(), jitter)
}

/// The same for the VMs and fields that `filter` passes. A VM that comes to fit is `Created`, one that ceases
/// to is `Deleted`.
pub fn watch_filtered(client: &Vminfod, filter: Filter, jitter: Jitter) -> Watcher {
    let policy = Policy { max: LONGEST_WAIT, ..Policy::probe() };
    Watcher {
        client: client.clone(),
        filter,
        backoff: Backoff::new(&policy, jitter),
        step: Step::Wait(Instant::now()),
        mirror: Mirror::default(),
        out: VecDeque::new(),
        seq: None,
        epoch: None,
    }
}

impl Watcher {
    /// The next event. Cancel-safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            if let Some(event) = self.out.pop_front() {
                return event;
            }
            if let Err(error) = self.advance().await {
                self.lose(error);
            }
        }
    }

    /// The events as a [`Stream`] that never ends.
    pub fn into_stream(self) -> impl Stream<Item = WatchEvent> + Send {
        stream::unfold(self, |mut watcher| async { Some((watcher.next().await, watcher)) })
    }

    /// Whether the stream is up and the view complete.
    pub fn is_following(&self) -> bool {
        matches!(self.step, Step::Follow { catch_up: None, .. })
    }

    /// What is known of every VM; after a `Lost` it is as old as that.
    pub fn view(&self) -> &Mirror {
        &self.mirror
    }

    /// Epoch and number of the last event taken in, where the service counts.
    pub fn position(&self) -> (Option<&str>, Option<u64>) {
        (self.epoch.as_deref(), self.seq)
    }

    /// One step of the machine. State changes only after the last await of each arm.
    async fn advance(&mut self) -> Result<(), Error> {
        match &mut self.step {
            Step::Wait(until) => {
                sleep_until(*until).await;
                let http = self.client.http().clone();
                let mut call = self.filter.on(Call::get(&["events"])).timeout(READY_WITHIN);
                if let (Some(epoch), Some(seq)) = self.position() {
                    call = call.query("epoch", epoch).query("since", seq.to_string());
                }
                let opening = Box::pin(async move { http.open(call).await });
                self.step = Step::Connect { opening, by: Instant::now() + READY_WITHIN };
            }
            Step::Connect { opening, by } => {
                let by = *by;
                let opened = match timeout_at(by, opening).await {
                    Ok(Err(error)) if error.class() == Class::Gone && self.seq.is_some() => {
                        tracing::info!(error = %error, "cannot resume vminfod's stream; reading a new snapshot");
                        self.forget_position();
                        self.step = Step::Wait(Instant::now());
                        return Ok(());
                    }
                    opened => opened.map_err(|_| late(Phase::Answer))??,
                };
                let lines = Lines::new(LINE_CAP);
                self.step = Step::AwaitReady { body: opened.body, lines, by };
            }
            Step::AwaitReady { body, lines, by } => {
                let next = timeout_at(*by, next_record(body, lines));
                let record = next.await.map_err(|_| late(Phase::Body))??;
                let catch_up = self.begin(record)?;
                let now = Step::Wait(Instant::now());
                if let Step::AwaitReady { body, lines, .. } = std::mem::replace(&mut self.step, now)
                {
                    self.step = Step::Follow { body, lines, since: Instant::now(), catch_up };
                    self.caught_up();
                }
            }
            Step::Follow { body, lines, .. } => {
                let record = next_record(body, lines).await?;
                self.follow(record)?;
                self.caught_up();
            }
        }
        Ok(())
    }

    /// Takes the first line in; says up to which event the view is not complete.
    fn begin(&mut self, record: Record) -> Result<Option<u64>, Error> {
        match record {
            Record::Ready { vms, seq, epoch, .. } => {
                self.mirror.snapshot(vms, &mut self.out);
                if self.filter.is_none() {
                    (self.seq, self.epoch) = (seq, epoch);
                }
                Ok(None)
            }
            Record::Resume { seq, newest, epoch }
                if self.seq == Some(seq) && self.epoch.as_ref() == Some(&epoch) =>
            {
                Ok(Some(newest.unwrap_or(seq)))
            }
            Record::Resume { .. } => Err(broken("resumed elsewhere than was asked")),
            _ => Err(broken("the first line is not ready")),
        }
    }

    /// Emits `Synced` once the view is complete.
    fn caught_up(&mut self) {
        if let Step::Follow { catch_up, .. } = &mut self.step
            && catch_up.is_some_and(|newest| self.seq >= Some(newest))
        {
            *catch_up = None;
            self.mirror.caught_up(&mut self.out);
        }
    }

    fn forget_position(&mut self) {
        (self.seq, self.epoch) = (None, None);
    }

    fn follow(&mut self, record: Record) -> Result<(), Error> {
        if matches!(record, Record::Ready { .. } | Record::Resume { .. }) {
            return Err(broken("a second first line"));
        }
        if let (Some(last), Some(seq)) = (self.seq, record.seq()) {
            if seq <= last {
                tracing::debug!(seq, last, "event seen before");
                return Ok(());
            }
            if seq != last + 1 {
                return Err(broken(format!("gap: event {seq} after {last}")));
            }
        }
        if self.filter.is_none() {
            self.seq = record.seq().or(self.seq);
        }
        match record {
            Record::Create { zonename, vm, .. } => {
                self.mirror.apply(zonename, vm, Vec::new(), &mut self.out);
            }
            Record::Modify { zonename, vm, changes, .. } => {
                self.mirror.apply(zonename, vm, changes, &mut self.out);
            }
            Record::Delete { zonename, .. } => self.mirror.remove(&zonename, &mut self.out),
            Record::Other(kind) => {
                tracing::warn!(kind, "ignored an event of a type that is not known")
            }
            Record::Ready { .. } | Record::Resume { .. } => {}
        }
        Ok(())
    }

    fn lose(&mut self, error: Error) {
        if let Step::Follow { since, .. } = &self.step
            && since.elapsed() >= CALM
        {
            self.backoff.reset();
        }
        let delay = self.backoff.next_delay().unwrap_or(LONGEST_WAIT);
        tracing::info!(error = %error, delay_ms = delay.as_millis() as u64, "lost vminfod's stream; connecting again");
        self.step = Step::Wait(Instant::now() + delay);
        // What made no sense once would make none again.
        if error.class() == Class::Protocol {
            self.forget_position();
        }
        self.out.push_back(WatchEvent::Lost(error));
    }
}

/// Cancel-safe: each piece is kept in `lines` before the next await.
async fn next_record(body: &mut Body, lines: &mut Lines) -> Result<Record, Error> {
    loop {
        let line = lines.next_line().map_err(|e| broken("a line is too long").with_source(e))?;
        if let Some(line) = line {
            return parse_line(&line).map_err(|e| broken(e.to_string()).with_source(e));
        }
        match body.next().await {
            Some(Ok(piece)) => lines.push(&piece),
            Some(Err(e)) => return Err(e),
            None if lines.pending() > 0 => return Err(interrupted("ended inside a line")),
            None => return Err(interrupted("the stream ended")),
        }
    }
}

fn broken(what: impl Into<String>) -> Error {
    Error::new(Class::Protocol, &Method::GET, PATH, what)
}

fn interrupted(what: &str) -> Error {
    Error::broken(&Method::GET, PATH, what)
}

fn late(phase: Phase) -> Error {
    Error::timed_out(phase, &Method::GET, PATH, READY_WITHIN)
}
