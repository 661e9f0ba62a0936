// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rounds of one migration, until nothing of it runs.
//!
//! A round may be the last one that this process lives to do, so no decision depends on what is kept between rounds
//! (`Memory` is for waits and for people). The revision is raised and stored first: a service that lost its lease
//! fails there, before it has asked a node for anything.

use std::time::Duration;

use store::Fence;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::ask::found_older;
use super::ending::{end, give_up, is_busy};
use super::observe::{Round, observe};
use super::order::{Failed, Reported};
use super::step::run_step;
use super::tickets::{self, For};
use super::twins;
use crate::records::Stored;
use crate::state::Service;
use migration_core::downtime;
use migration_core::intent::{Again, End, Remedy};
use migration_core::limits::Attempts;
use migration_core::machine::{Next, Report, Step, may_be_over, next, note};
use migration_core::progress::{Latest, Meter, advance, mark};
use migration_core::protocol::Progress;
use migration_core::record::{Phase, Record, State, node_of};
use migration_core::time::Time;

/// A step that waits checks this often whether a command changed the record.
const POLL: Duration = Duration::from_secs(1);
/// Both nodes are observed so often while a stream runs: each time `zfs` lists all of the VM's datasets and snapshots.
const OBSERVES: Duration = Duration::from_secs(10);
/// The longest wait of a step while the VM is stopped: it is down until the step is done.
const DOWN_MS: u64 = 5_000;
/// While the VM is stopped, and both agents answer, a step has one more try: then the switch is undone, and the VM runs
/// again where it ran.
const TRIES: u32 = 2;
/// The wait after a write that was lost against another.
const LOST: Duration = Duration::from_millis(200);
/// A store that is away is asked again.
const AWAY: Duration = Duration::from_secs(2);
/// No observation takes longer.
const UNANSWERED: Duration = Duration::from_secs(3600);
/// So much of why a step is tried again is kept for people.
const MOST_TOLD: usize = 500;

/// What is remembered between the rounds: nothing that a decision depends on.
#[derive(Default)]
struct Memory {
    attempts: Attempts,
    /// The last attempt went on: nothing is tried again.
    goes_on: bool,
    /// What is left of a wait that is cut into parts, in ms: attempts between them are not counted.
    left_ms: u64,
    /// The last step that was done: the same again brings nothing forward.
    last: Option<Step>,
    /// How far the stream that runs is, and the bytes of the last one that ended.
    running: Progress,
    sent: Option<u64>,
    /// How far the streams of a step came that failed.
    farthest: Option<(Step, Progress)>,
    meter: Option<(Option<Time>, Meter)>,
}

impl Memory {
    /// A stream of this step failed. Returns whether it sent more than those before, or has less left: where both ends
    /// can resume it sends the rest alone. One that the other end refuses each time brings nothing forward.
    fn has_progressed(&mut self, step: &Step, cut: Progress) -> bool {
        let left = |of: &Progress| of.total.saturating_sub(of.current);
        let before = self.farthest.filter(|(of, _)| of == step).map(|(_, progress)| progress);
        let is_farther = before.is_none_or(|it| cut.current > it.current || left(&cut) < left(&it));
        if cut.current == 0 || !is_farther {
            return false;
        }
        self.farthest = Some((*step, cut));
        true
    }
}

/// Does the rounds of a record until it waits, is over, or another instance holds the lease.
pub async fn drive(service: Service, fence: Fence, id: Uuid) {
    let mut drive = Drive { service: &service, fence: &fence, memory: Memory::default() };
    loop {
        let pause = match drive.round(id).await {
            Ok(true) => continue,
            Ok(false) | Err(Failed::Fenced) => return,
            Err(Failed::Lost) => LOST,
            Err(
                Failed::Again(why) | Failed::Cut(why, _) | Failed::Fatal(why) | Failed::NoRoom(why),
            ) => {
                tracing::warn!(%id, reason = why, "cannot process a migration in this round; trying again in the next");
                AWAY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// What all rounds of a record have.
struct Drive<'a> {
    service: &'a Service,
    fence: &'a Fence,
    memory: Memory,
}

impl Drive<'_> {
    /// Does one round. Returns false if there is none to do.
    async fn round(&mut self, id: Uuid) -> Result<bool, Failed> {
        let (service, fence) = (self.service, self.fence);
        let Some(mut kept) = service.records.get(id).await? else { return Ok(false) };
        if !is_busy(&kept.record) {
            return Ok(false);
        }
        if std::mem::take(&mut self.memory.goes_on) {
            kept.record.intent.again = None;
        }
        kept.raise();
        service.records.write(&mut kept, Some(fence)).await?;
        if let Err(failed) = ticket(service, fence, &mut kept).await {
            return self.failed_once(&mut kept, failed, false, None).await;
        }
        let seen = self.look(&mut kept).await?;
        // Another service has raised the revision, or the store was restored.
        if seen.ahead.is_some() && service.records.is_changed(&kept).await? {
            return Err(Failed::Lost);
        }
        let is_wrong = !may_be_over(&kept.record, &seen.facts, &seen.over);
        let ahead = seen.ahead.or(seen.over.first().copied().filter(|_| is_wrong));
        if let Some(cn) = ahead.and_then(|end| node_of(&kept.record, end)) {
            return found_older(service, &mut kept, cn, Some(fence)).await.map(|()| false);
        }
        let is_nowhere = seen.facts.is_nowhere(kept.record.intent.target_shown);
        let runs_again = downtime::seen(&mut kept.record, &seen.facts, service.clock.now());
        let before = kept.record.intent.clone();
        for end in [End::Source, End::Target] {
            let answers = seen.facts.seen(end) != &Report::Silent;
            // Of a node that cannot be asked nothing is known.
            if answers || !seen.errors.iter().any(|(of, _)| *of == end) {
                kept.record.intent.heard(end, answers, service.clock.now());
            }
        }
        twins::found(&mut kept.record, seen.facts.both_run(), service.clock.now());
        let is_changed = runs_again || kept.record.intent != before;
        if is_changed || is_nowhere != kept.record.intent.hidden_since.is_some() {
            let since = kept.record.intent.hidden_since.unwrap_or_else(|| service.clock.now());
            kept.record.intent.hidden_since = is_nowhere.then_some(since);
            service.records.write(&mut kept, Some(fence)).await?;
        }
        match next(&kept.record, &seen.facts) {
            Next::Note(it) => {
                downtime::noted(&mut kept.record, it, service.clock.now());
                note(&mut kept.record, it);
                service.records.write(&mut kept, Some(fence)).await?;
            }
            Next::Do(step) => return self.act(&mut kept, &step, &seen).await,
            Next::Wait(why) => {
                let failed = Failed::Again(seen.waits_for(&why));
                let most = may_undo(&kept.record, &seen).then_some(TRIES);
                return self.failed_once(&mut kept, failed, false, most).await;
            }
            Next::GiveUp(reason) => {
                let remedy = reason.remedy(&kept.record);
                give_up(service, &mut kept, &seen.sentence(&reason), remedy, fence).await?;
            }
            Next::End(ending) => {
                let sent = self.memory.sent.take();
                end(service, &mut kept, ending, sent, fence).await?;
            }
        }
        let Memory { meter, sent, .. } = std::mem::take(&mut self.memory);
        self.memory = Memory { meter, sent, goes_on: true, ..Memory::default() };
        Ok(true)
    }

    /// Observes until both agents have read what they were asked, and says meanwhile what takes so long. A begin needs no
    /// list of snapshots, nor does an abort, unless the source is lost.
    async fn look(&self, kept: &mut Stored) -> Result<Round, Failed> {
        let (service, intent) = (self.service, &kept.record.intent);
        let is_first_or_last = matches!(kept.record.phase, Phase::Begin | Phase::Abort);
        let mut brief = is_first_or_last && intent.rescue.is_none();
        let mut was_working = false;
        loop {
            // A command does not wait for an agent that hangs: what is asked for may be to go on without it.
            let seen = tokio::select! {
                seen = observe(service, &kept.record, brief) => seen,
                true = is_called(service, kept, UNANSWERED) => return Err(Failed::Lost),
            };
            was_working |= seen.working.is_some();
            match &seen.working {
                None if brief && seen.facts.is_lost(End::Source) => brief = false,
                None => {
                    kept.record.intent.runs.take_if(|_| was_working);
                    return Ok(seen);
                }
                Some(runs) if runs.is_some() && *runs != kept.record.intent.runs => {
                    kept.record.intent.runs.clone_from(runs);
                    service.records.write(kept, Some(self.fence)).await?;
                }
                Some(_) => {}
            }
            // A command does not wait for it.
            if seen.working.is_some() && is_called(service, kept, POLL).await {
                return Err(Failed::Lost);
            }
        }
    }

    /// Runs a step, and publishes its progress.
    async fn act(&mut self, kept: &mut Stored, step: &Step, seen: &Round) -> Result<bool, Failed> {
        let (service, fence) = (self.service, self.fence);
        if let Some(mark) = mark(kept.record.phase, step)
            && let Some(entry) = kept.record.progress_history.last_mut()
            && entry.current_progress.is_none_or(|current| current < mark.0)
        {
            advance(entry, mark);
            service.records.write(kept, Some(fence)).await?;
        }
        let until = Instant::now() + OBSERVES;
        let carried = loop {
            let carried = run_step(service, kept, step, seen, fence).await;
            let Ok(Reported::Running(progress)) = carried else { break carried };
            if let Some(progress) = progress {
                self.store_progress(&kept.record, progress).await?;
            }
            if Instant::now() >= until || service.records.is_changed(kept).await? {
                break carried;
            }
        };
        match carried {
            Ok(Reported::Running(_)) => {
                self.memory.goes_on = true;
                Ok(true)
            }
            Ok(done) => {
                if let Reported::Sent(bytes) = done {
                    (self.memory.sent, self.memory.running) = (Some(bytes), Progress::default());
                }
                let is_again = self.memory.last.replace(*step) == Some(*step);
                if is_again {
                    let why = Failed::Again(format!(
                        "{step}: reported done, but the next reading does not show it"
                    ));
                    // That was the other try.
                    let most = may_undo(&kept.record, seen).then_some(TRIES - 1);
                    return self.failed_once(kept, why, false, most).await;
                }
                (self.memory.attempts, self.memory.left_ms) = (Attempts::default(), 0);
                self.memory.goes_on = true;
                Ok(true)
            }
            Err(failed) => {
                let running = std::mem::take(&mut self.memory.running);
                // A stream that was cut within a second was never seen to run; of an agent that died nothing else is
                // known.
                let cut = if let Failed::Cut(_, cut) = failed { cut } else { running };
                let has_progressed = self.memory.has_progressed(step, cut);
                let most = may_undo(&kept.record, seen).then_some(TRIES);
                self.failed_once(kept, failed, has_progressed, most).await
            }
        }
    }

    /// Waits before the next attempt, or gives up after as many as there may be: `most`, or as the settings say. What
    /// failed before this service did the rounds counts, too: the record has it.
    async fn failed_once(
        &mut self,
        kept: &mut Stored,
        failed: Failed,
        has_progressed: bool,
        most: Option<u32>,
    ) -> Result<bool, Failed> {
        let (service, fence) = (self.service, self.fence);
        // After the switch it is the source that has none, and rollback is what ends that.
        let is_target = !kept.record.intent.target_shown;
        let remedy = matches!(failed, Failed::NoRoom(_) if is_target).then_some(Remedy::Room);
        let why = match failed {
            Failed::Fatal(why) | Failed::NoRoom(why) => {
                give_up(service, kept, &why, remedy, fence).await?;
                self.memory = Memory::default();
                return Ok(true);
            }
            Failed::Again(why) | Failed::Cut(why, _) => why,
            failed => return Err(failed),
        };
        let mut settings = service.settings.read().await?;
        settings.max_attempts = most.unwrap_or(u32::MAX).min(settings.max_attempts);
        let before = kept.record.intent.again.as_ref().map_or(0, |it| it.failed);
        self.memory.attempts = self.memory.attempts.or_after(before);
        let wait = match std::mem::take(&mut self.memory.left_ms) {
            0 => self.memory.attempts.failed(has_progressed, &settings),
            left => Some(left),
        };
        match wait {
            Some(all) => {
                let is_down = kept.record.intent.power.is_some_and(|power| power.running);
                let ms = if is_down { all.min(DOWN_MS) } else { all };
                self.memory.left_ms = all - ms;
                let (now, most) = (service.clock.now(), settings.max_attempts);
                kept.record.intent.again = Some(Again {
                    why: why.chars().take(MOST_TOLD).collect(),
                    since: kept.record.intent.again.as_ref().map_or(now, |it| it.since),
                    failed: self.memory.attempts.count(),
                    most,
                    next: now.plus(i64::try_from(ms).unwrap_or(i64::MAX)),
                });
                let written = service.records.write(kept, Some(fence)).await.map_err(Failed::from);
                if written == Err(Failed::Lost) {
                    // A request has changed the record: a command does not wait for this.
                    (self.memory.attempts, self.memory.left_ms) = (Attempts::default(), 0);
                    self.memory.goes_on = true;
                }
                written?;
                tracing::warn!(vm = %kept.record.vm_uuid, reason = why, wait_ms = ms, "a step failed; trying again");
                if is_called(service, kept, Duration::from_millis(ms)).await {
                    (self.memory.attempts, self.memory.left_ms) = (Attempts::default(), 0);
                    self.memory.goes_on = true;
                }
            }
            None => {
                give_up(service, kept, &why, None, fence).await?;
                self.memory = Memory::default();
            }
        }
        Ok(true)
    }

    /// Stores the progress of a stream, for those who watch.
    async fn store_progress(&mut self, record: &Record, progress: Progress) -> Result<(), Failed> {
        self.memory.running = progress;
        let now = self.service.clock.now();
        let of = record.progress_history.last().and_then(|entry| entry.started_timestamp);
        let meter = match &mut self.memory.meter {
            Some((whose, meter)) if *whose == of => meter,
            place => &mut place.insert((of, Meter::new(progress.total, now))).1,
        };
        if let Some(event) = meter.read(progress.current, now) {
            let latest = Latest { of, event: event.to_json() };
            self.service.records.news.put_event(record.vm_uuid, &latest).await?;
        }
        Ok(())
    }
}

/// Returns true while a switch keeps a VM down that ran and can be undone at once: both agents answer, and the target was
/// not shown.
fn may_undo(record: &Record, seen: &Round) -> bool {
    let intent = &record.intent;
    let is_down = intent.power.is_some_and(|power| power.running);
    let answers = |end: End| seen.facts.node(end).is_some();
    record.phase == Phase::Switch
        && is_down
        && !intent.target_shown
        && intent.undo.is_none()
        && intent.rescue.is_none()
        && !intent.is_dead(End::Source)
        && answers(End::Source)
        && answers(End::Target)
}

/// Waits. Returns true as soon as the record was changed: a command does not wait for a step that does.
async fn is_called(service: &Service, kept: &Stored, wait: Duration) -> bool {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        sleep_until(until.min(Instant::now() + POLL)).await;
        if service.records.is_changed(kept).await == Ok(true) {
            return true;
        }
    }
    false
}

/// Holds CNAPI's ticket of the VM while it is switched or rolled back. What is undone, and what is past the point
/// of no return, goes on without it.
async fn ticket(service: &Service, fence: &Fence, kept: &mut Stored) -> Result<(), Failed> {
    let record = &kept.record;
    let intent = &record.intent;
    let moves = match record.phase {
        _ if intent.rescue.is_some() => true,
        Phase::Switch => !intent.target_shown,
        Phase::Rollback => !intent.source_shown,
        _ => false,
    };
    if !moves || intent.undo.is_some() || intent.ticket.is_some() || record.state != State::Running
    {
        return Ok(());
    }
    tickets::take(service, kept, fence, For::Switch).await
}
