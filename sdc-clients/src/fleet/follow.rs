// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The follower: snapshot and changes as one endless stream.
//!
//! ```text
//!  start ─► snapshot (VMS) ─► follow (CHANGES, behind what VMS has) ─┐
//!    ▲  ▲                          ▲                                 │ Lost
//!    │  └── Hole: CHANGES is        └──── goes on behind the last ◄──┤
//!    │      another one, or has      message that was taken          │
//!    │      dropped what comes next                                  │
//!    └────────────────── wait (back-off) ◄───────────────────────────┘
//! ```
//!
//! A follower reads one server's copy. So that it is not wrong for long it takes a snapshot again soon after something
//! was missed, and as often as it is asked to, and says so and tells what differs.
//!
//! There is no task behind it: [`Follower::next`] drives the machine.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::begin::{Begun, Changes, begin, later};
use super::chain::Chain;
use super::error::FleetError;
use super::event::{FleetEvent, Place};
use super::message::{Kind, Message};
use super::mirror::{Follows, Line, Mirror};
use super::read::Fleet;
use super::reading::{Reading, Received};
use crate::jitter::Jitter;
use crate::retry::{Backoff, Policy};

/// How often a stream that ends before the place is asked again.
const PATIENT: u32 = 6;
/// Where something was missed a snapshot is taken again after that long: the other servers may have it.
const AUDIT_OF_A_MISS: Duration = Duration::from_secs(60);
/// The waits after a loss.
pub(super) const WAITS: Policy = Policy {
    initial: Duration::from_millis(250),
    max: Duration::from_secs(10),
    multiplier: 2.0,
    max_attempts: None,
    max_elapsed: None,
};

enum Step {
    Wait(Instant),
    Begin(BoxFuture<'static, Result<Begun, FleetError>>),
    Follow { reading: Box<Reading>, look: BoxFuture<'static, Result<Changes, FleetError>> },
}

/// Follows the feed. Made by [`Follower::new`].
pub struct Follower {
    fleet: Fleet,
    filter: String,
    backoff: Backoff,
    step: Step,
    place: Option<Place>,
    mirror: Mirror,
    /// Of whole nodes: none where only one VM of a node passes the filter.
    chain: Option<Chain>,
    is_filled: bool,
    /// After a snapshot, the message of `CHANGES` with which the mirror is complete: `VMS` may be behind.
    complete_at: Option<u64>,
    /// Nothing that passes the filter was left behind the last message.
    has_all: bool,
    /// Between two snapshots.
    audit: Duration,
    /// When the last one came.
    filled: Instant,
    /// Something was missed since.
    has_missed: bool,
    /// How often in a row the stream seemed to end before the place.
    behind: u32,
    out: VecDeque<FleetEvent>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Follower {
    /// Follows the subjects that pass `filter`, such as `vms.CN.*` or `vms.*.VM`.
    pub fn new(fleet: &Fleet, filter: &str, jitter: Jitter) -> Follower {
        Follower {
            fleet: fleet.clone(),
            filter: filter.to_owned(),
            backoff: Backoff::new(&WAITS, jitter),
            step: Step::Wait(Instant::now()),
            place: None,
            mirror: Mirror::default(),
            chain: filter.ends_with(['*', '>']).then(Chain::default),
            is_filled: false,
            complete_at: None,
            has_all: false,
            audit: Duration::MAX,
            filled: Instant::now(),
            has_missed: false,
            behind: 0,
            out: VecDeque::new(),
        }
    }

    /// Takes a snapshot again that often, and says so each time ([`FleetEvent::Again`]): what a server lost alone, none
    /// of its messages tells where no other comes.
    #[must_use]
    pub fn audited(self, audit: Duration) -> Follower {
        Follower { audit, ..self }
    }

    /// What is known of every VM; after a `Lost` it is as old as that.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Where it is.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Returns true if the feed is being followed.
    pub fn is_following(&self) -> bool {
        matches!(self.step, Step::Follow { .. })
    }

    /// The next event. Cancel-safe: what a dropped future had not taken in is read again.
    pub async fn next(&mut self) -> FleetEvent {
        loop {
            if let Some(event) = self.out.pop_front() {
                return event;
            }
            if let Err(error) = self.advance().await {
                // At least one attempt counts: these waits never end.
                let wait = self.backoff.next_delay().unwrap_or(WAITS.max);
                self.step = Step::Wait(Instant::now() + wait);
                self.out.push_back(FleetEvent::Lost(self.fleet.explain(error)));
            }
        }
    }

    /// One step of the machine. What is under way is kept in the step: a caller that drops this future again and again,
    /// such as a loop with a short timer, does not begin it anew each time.
    async fn advance(&mut self) -> Result<(), FleetError> {
        match &mut self.step {
            Step::Wait(until) => {
                sleep_until(*until).await;
                let (fleet, filter) = (self.fleet.clone(), self.filter.clone());
                let (place, is_patient) = (self.place.clone(), self.behind < PATIENT);
                self.step = Step::Begin(Box::pin(begin(fleet, filter, place, is_patient)));
            }
            Step::Begin(beginning) => {
                let begun = beginning.await?;
                return self.begun(begun);
            }
            Step::Follow { reading, look } => {
                // Both arms are cancel-safe.
                tokio::select! {
                    received = reading.next() => {
                        let received = received?;
                        self.backoff.reset();
                        self.take(&received);
                        self.completed(false);
                    }
                    now = look => {
                        let now = now?;
                        self.looked(&now);
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks whether `CHANGES` is still the stream that is followed.
    fn looked(&mut self, now: &Changes) {
        if let (true, Some(place)) = (self.has_all, &mut self.place)
            && place.made == now.made
        {
            // What was dropped meanwhile did not pass the filter.
            place.seq = place.seq.max(now.first.saturating_sub(1));
        }
        self.completed(true);
        let age = self.filled.elapsed();
        if age >= self.audit || self.has_missed && age >= AUDIT_OF_A_MISS {
            self.place = None;
            self.step = Step::Wait(Instant::now());
            // What comes with the snapshot comes as no event.
            let is_missed = self.has_missed;
            self.out.push_back(if is_missed { FleetEvent::Hole } else { FleetEvent::Again });
            return;
        }
        let goes_on = self.place.as_ref().is_some_and(|place| now.has(place));
        if let (true, Step::Follow { look, .. }) = (goes_on, &mut self.step) {
            *look = later(&self.fleet);
        } else {
            self.step = Step::Wait(Instant::now());
        }
    }

    fn begun(&mut self, begun: Begun) -> Result<(), FleetError> {
        match begun {
            Begun::Behind => {
                self.behind += 1;
                return Err(FleetError::away("the server that answers is behind"));
            }
            Begun::Hole => {
                self.place = None;
                self.step = Step::Wait(Instant::now());
                self.out.push_back(FleetEvent::Hole);
            }
            Begun::Follow { place, snapshot, reading } => {
                self.has_all = reading.pending == 0;
                self.behind = 0;
                self.place = Some(place);
                self.step = Step::Follow { reading, look: later(&self.fleet) };
                if let Some((held, last)) = snapshot {
                    (self.filled, self.has_missed) = (Instant::now(), false);
                    self.complete_at = Some(last);
                    self.fill(held);
                }
                self.completed(false);
            }
        }
        Ok(())
    }

    /// Takes a snapshot in: differences first.
    fn fill(&mut self, held: Vec<Received>) {
        let mut present = BTreeSet::new();
        self.chain = self.chain.take().map(|_| Chain::default());
        for received in held {
            let Some(message) = received.message else {
                self.out.push_back(FleetEvent::Odd { subject: received.subject });
                continue;
            };
            // What VMS has of a node is not all of it.
            self.chain.as_mut().map(|chain| chain.breaks_at(&message));
            if message.target.vm.is_none() || message.labels.kind == Kind::Delete {
                continue;
            }
            present.insert(message.target.clone());
            self.put(&message, true);
        }
        for vm in self.mirror.retain(&present) {
            self.out.push_back(FleetEvent::Gone { at: vm.at.clone(), vm, compared: true });
        }
    }

    /// Tells that the mirror is complete, once it has what there was when the snapshot was read. `is_late`: it has
    /// had the time to come, and the servers may have lost it.
    fn completed(&mut self, is_late: bool) {
        if !self.is_filled {
            // The first snapshot is no news.
            let is_news = |event: &FleetEvent| matches!(event, FleetEvent::Odd { .. });
            self.out.retain(is_news);
        }
        let seq = self.place.as_ref().map_or(0, |place| place.seq);
        let has_all = is_late && self.has_all;
        if self.complete_at.take_if(|last| has_all || seq >= *last).is_some() {
            self.is_filled = true;
            self.out.push_back(FleetEvent::Synced);
        }
    }

    fn take(&mut self, received: &Received) {
        self.has_all = received.pending == 0;
        if let Some(place) = &mut self.place {
            if received.seq <= place.seq {
                return;
            }
            place.seq = received.seq;
        }
        match &received.message {
            None => self.out.push_back(FleetEvent::Odd { subject: received.subject.clone() }),
            Some(message) => {
                let is_marker = message.labels.kind == Kind::Resync;
                let is_broken = self.chain.as_mut().is_some_and(|chain| chain.breaks_at(message));
                let follows = self.mirror.follows(message);
                let is_missed = is_broken || follows == Follows::Hole;
                // The operator's marker stands for what the streams do not have any more.
                self.has_missed |= is_missed || is_marker && message.labels.compared;
                if is_marker || is_missed {
                    self.out.push_back(FleetEvent::Resync { cn: message.target.cn.clone() });
                }
                if !is_marker && follows != Follows::Repeated {
                    self.put(message, message.labels.compared);
                }
            }
        }
    }

    fn put(&mut self, message: &Message, compared: bool) {
        let line = Line::of(message);
        if line.left_out > 0 {
            let subject = super::message::subject(&message.target.cn, message.target.vm.as_deref());
            self.out.push_back(FleetEvent::Odd { subject });
        }
        let old = self.mirror.get(&message.target).cloned();
        let is_gone = message.labels.kind == Kind::Delete;
        let Some(vm) = self.mirror.take(message, line.vm) else { return };
        self.out.push_back(match (is_gone, old) {
            (true, _) => FleetEvent::Gone { vm, at: message.labels.at.clone(), compared },
            (false, Some(old)) if compared && old.object == vm.object => return,
            (false, old) => {
                FleetEvent::Changed { vm, changes: line.changes, is_new: old.is_none(), compared }
            }
        });
    }
}
