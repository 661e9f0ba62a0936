// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A migration that the store does not know, or knows as it once was, is adopted: its record is made from what its
//! agents have and from what is on the nodes. Nothing is done to a copy; the commands go on from there.

use migration_core::intent::{Confirmation, End, Intent, Power};
use migration_core::machine::{Copy, Facts, Next, Node, Report, SettingsMatch, Wait, next, rescue};
use migration_core::protocol::{About, Observe, WAITS};
use migration_core::record::{Entry, EntryFields, Phase, Record, State, node_of};
use uuid::Uuid;

use super::action_params::ActionParams;
use super::begin::Vm;
use super::records::{Lock, Stored, nonce};
use super::refused::Refused;
use super::state::Service;

/// Why there is no record to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Both copies are in use, as far as the nodes show.
    #[error(
        "both copies of the instance are shown: name the node whose copy is not to be used any more (sdc-migrate adopt \
         --other CN VM), or stop and hide it there first"
    )]
    BothShown,
    /// A hidden copy runs.
    #[error("the hidden copy on the {0}'s node runs: stop it there first")]
    Runs(End),
    /// VMAPI names the node of the copy that is hidden.
    #[error(
        "VMAPI has the instance on the {0}'s node, and its copy there is hidden: show it there, or hide the other"
    )]
    Elsewhere(End),
    /// A copy that was in use waits, and VMAPI has the VM on the other node.
    #[error(
        "the copy on the {0}'s node does not boot until this service allows it, and VMAPI has the instance on the other node"
    )]
    Waits(End),
    /// VMAPI names neither node.
    #[error("VMAPI has the instance on neither of the two nodes")]
    Vmapi,
}

/// The record's new content.
#[derive(Clone, Debug, PartialEq)]
struct Adopted {
    phase: Phase,
    state: State,
    intent: Intent,
    /// What a person has to know.
    error: Option<&'static str>,
}

/// A record that can be made, and what it is made of.
pub struct Draft {
    /// The record that it takes the place of.
    kept: Option<Stored>,
    lock: Lock,
    pub record: Record,
    /// What is known of the two copies.
    known: [CopyState; 2],
}

/// What there is to adopt.
enum Drafted {
    /// The migration had ended: its record has gone.
    Ended(Box<Record>),
    Open(Box<Draft>),
}

/// A begin that was not over, or a copy that was deleted.
const NO_COPY: Option<&str> = Some("adopted without a copy: abort it, then begin");

/// What is known of a copy.
#[derive(Clone, Debug, PartialEq)]
enum CopyState {
    /// Its agent does not answer.
    Silent,
    /// Its key was revoked: what it says of its copy is not heard. It may run.
    Revoked,
    /// Its agent keeps it stopped and hidden until the service answers whether it was replaced.
    Waits,
    Node(Node),
}

/// Returns where a migration is by what its nodes show. `word` is of who adopts it: a node that does not answer, or
/// whose copy waits, where the other copy is in use, is dead by it; so is the node that he names, where both copies are
/// shown. `is_reserved`: an address is, as it is during a switch.
fn judge(
    source: &CopyState,
    target: &CopyState,
    (vmapi, is_reserved): (Option<End>, bool),
    [source_had, target_had]: [Option<Power>; 2],
    (word, named): (&Confirmation, Option<End>),
) -> Result<Adopted, Unclear> {
    let waiting = |shown: bool| Copy { hidden: !shown, ..Copy::default() };
    let copy = |known: &CopyState, is_shown: bool| match known {
        CopyState::Node(node) => node.copy.clone(),
        CopyState::Waits => Some(waiting(is_shown)),
        CopyState::Silent | CopyState::Revoked => None,
    };
    let is_silent = |known: &CopyState| matches!(known, CopyState::Silent | CopyState::Revoked);
    let is_shown = |copy: &Option<Copy>| copy.as_ref().is_some_and(|copy| !copy.hidden);
    // The agent shows a copy that waits again when the service answers that it was not replaced.
    let to = copy(target, vmapi == Some(End::Target));
    let is_in_use = |other: &Option<Copy>| vmapi == Some(End::Source) && !is_shown(other);
    let from = copy(source, is_in_use(&to));
    if *target == CopyState::Waits && vmapi == Some(End::Source) && is_shown(&from) {
        return Err(Unclear::Waits(End::Target));
    }
    // What is replaced by the word of who adopts it counts as hidden: the service sees to it.
    let replaced = named.filter(|_| is_shown(&from) && is_shown(&to));
    let hides = |copy: Option<Copy>, end: End| match replaced == Some(end) {
        true => copy.map(|copy| Copy { hidden: true, running: false, ..copy }),
        false => copy,
    };
    let (from, to) = (hides(from, End::Source), hides(to, End::Target));
    for (end, copy) in [(End::Source, &from), (End::Target, &to)] {
        if copy.as_ref().is_some_and(|copy| copy.hidden && copy.running) {
            return Err(Unclear::Runs(end));
        }
    }
    let dead = |known: &CopyState, end: End| {
        let is_dead =
            matches!(known, CopyState::Silent | CopyState::Waits) || replaced == Some(end);
        is_dead.then(|| word.clone())
    };
    let on_target = || Intent {
        target_shown: true,
        target_booted: true,
        source_dead: dead(source, End::Source),
        ..Intent::default()
    };
    // What the source did before the switch is unknown unless its agent reports it: the VM runs again.
    let power = source_had.or(Some(Power { running: true, autoboot: true }));
    let midway = || {
        let is_up = to.as_ref().is_some_and(|copy| copy.running);
        let target_booted = is_up || target_had.is_some();
        let power = target_had.or(power.filter(|_| !is_up));
        Intent { target_booted, power, ..on_target() }
    };
    // A rollback had begun, or a switch: the agent took from the copy what it did.
    let lacks = |copy: &Option<Copy>, had: Option<Power>| {
        copy.as_ref().zip(had).is_some_and(|(copy, had)| {
            had.running && !copy.running || had.autoboot && !copy.autoboot
        })
    };
    let adopted = |phase, state, intent| Adopted { phase, state, intent, error: None };
    let vmapi = vmapi.ok_or(Unclear::Vmapi)?;
    // Of a VM that was stopped since the switch no address is reserved any more.
    let is_done = !is_reserved || to.as_ref().is_some_and(|copy| copy.running);
    let between = Some("adopted in the middle of a switch: switch goes on with it");
    Ok(match (is_shown(&from), is_shown(&to), vmapi) {
        (true, true, _) => return Err(Unclear::BothShown),
        (true, false, End::Target) => return Err(Unclear::Elsewhere(End::Target)),
        (false, true, End::Target) if is_done && !lacks(&to, target_had) => {
            adopted(Phase::Switch, State::Successful, on_target())
        }
        // It was shown, or is about to be: the record in VMAPI follows.
        (false, true, _) => {
            Adopted { error: between, ..adopted(Phase::Switch, State::Failed, midway()) }
        }
        (true, false, End::Source)
            if replaced.is_none()
                && lacks(&from, source_had)
                && matches!(target, CopyState::Node(_)) =>
        {
            let intent = Intent { power: source_had, ..Intent::default() };
            Adopted { error: between, ..adopted(Phase::Switch, State::Failed, intent) }
        }
        (true, false, End::Source)
            if to.as_ref().is_none_or(|copy| copy.half) && matches!(target, CopyState::Node(_)) =>
        {
            Adopted { error: NO_COPY, ..adopted(Phase::Begin, State::Failed, Intent::default()) }
        }
        (true, false, End::Source) => {
            let target_dead = dead(target, End::Target);
            let source_shown = target_dead.is_some();
            let intent = Intent { target_dead, source_shown, ..Intent::default() };
            adopted(Phase::Sync, State::Paused, intent)
        }
        // The copy that VMAPI names is on the node that does not answer: it is the one in use.
        (false, false, End::Source) if is_silent(source) => {
            adopted(Phase::Sync, State::Paused, Intent::default())
        }
        (false, false, End::Target) if is_silent(target) => {
            adopted(Phase::Switch, State::Successful, on_target())
        }
        (false, false, End::Target) => {
            Adopted { error: between, ..adopted(Phase::Switch, State::Failed, midway()) }
        }
        // The target was never shown.
        (false, false, End::Source) => {
            let intent = Intent { power, ..Intent::default() };
            Adopted { error: between, ..adopted(Phase::Switch, State::Failed, intent) }
        }
    })
}

impl Service {
    /// Adopts the migration of a VM that the store does not know, or knows as it once was. `other` is the node of the
    /// copy whose agent does not answer or whose key was revoked, or of the copy that is not to be used any more.
    /// Fails if it is known, if no agent has it, if a node that is not named does not answer, or if it is not clear
    /// which copy is in use.
    pub async fn adopt(
        &self,
        vm: Uuid,
        other: Option<Uuid>,
        asked: &ActionParams,
    ) -> Result<Record, Refused> {
        let draft = match Box::pin(self.drafted(vm, other, asked)).await? {
            Drafted::Ended(record) => return Ok(*record),
            Drafted::Open(draft) => draft,
        };
        let (from, to) = (draft.record.source_server_uuid, draft.record.target_server_uuid);
        // A silent node is dead by this confirmation alone; one that answers waits.
        let [source, target] = &draft.known;
        for (cn, beside, known, end) in
            [(Some(from), to, source, End::Source), (to, Some(from), target, End::Target)]
        {
            if let Some(cn) = cn.filter(|_| *known == CopyState::Silent)
                && draft.record.intent.is_dead(end)
            {
                self.take_for_dead(cn, beside, asked.words.really).await?;
            }
        }
        self.keep(*draft).await
    }

    /// Returns the record of a migration whose record has gone, and of which a copy that was replaced is still watched;
    /// none where none is. Nothing is written.
    pub async fn replaced_alone(
        &self,
        vm: &Vm,
        asked: &ActionParams,
    ) -> Result<Option<Draft>, Refused> {
        let is_watched = !self.records.ends.of_vm(vm.uuid).await?.is_empty();
        if !is_watched || self.records.of_vm(vm.uuid).await?.is_some() {
            return Ok(None);
        }
        match Box::pin(self.drafted(vm.uuid, vm.server, asked)).await? {
            Drafted::Open(draft) => Ok(Some(*draft)),
            Drafted::Ended(_) => Ok(None),
        }
    }

    /// Refuses a rescue of a migration of which both copies are there, or may be.
    pub async fn may_rescue(&self, record: &Record, draft: Option<&Draft>) -> Result<(), Refused> {
        let known = match draft {
            Some(draft) => draft.known.clone(),
            None => {
                [self.copy_of(record, End::Source).await?, self.copy_of(record, End::Target).await?]
            }
        };
        let [source, target] = known.map(|known| match known {
            CopyState::Node(node) => Report::Node(node),
            CopyState::Waits => {
                Report::Node(Node { copy: Some(Copy::default()), ..Node::default() })
            }
            CopyState::Silent | CopyState::Revoked => Report::Silent,
        });
        let (settings, dated) = (SettingsMatch::Same, true);
        let facts = Facts { source, target, vmapi: None, reserved: false, settings, dated };
        let mut trial = record.clone();
        rescue(&mut trial, "", Uuid::nil(), self.clock.now());
        match next(&trial, &facts) {
            Next::GiveUp(why) => Err(Refused::precondition(&why.to_string())),
            Next::Wait(why @ Wait::Silent(_)) => {
                let what = "only when it says that it has no copy is there one to be rescued";
                Err(Refused::precondition(&format!("{why}: {what}")))
            }
            _ => Ok(()),
        }
    }

    /// Asks what is known of a copy of a migration at rest.
    async fn copy_of(&self, record: &Record, end: End) -> Result<CopyState, Refused> {
        let Some(cn) = node_of(record, end) else { return Ok(CopyState::Node(Node::default())) };
        let Intent { revision, nonce, .. } = record.intent;
        let (migration, vm) = (record.id, record.vm_uuid);
        match self.hears(cn).await {
            false => Ok(CopyState::Silent),
            true => self.observe(cn, About { migration, revision, nonce, vm, end }).await,
        }
    }

    /// Makes the record of a migration that the store does not know, or knows as it once was.
    async fn drafted(
        &self,
        vm: Uuid,
        other: Option<Uuid>,
        asked: &ActionParams,
    ) -> Result<Drafted, Refused> {
        let lock = self.records.lock(vm).await?;
        let kept = self.records.of_vm(vm).await?;
        if kept.as_ref().is_some_and(|kept| kept.record.intent.older.is_none()) {
            return Err(Refused::precondition("The migration is known and needs no adoption"));
        }
        let object = self.vm(vm).await?;
        let old = kept.as_ref().map(|kept| &kept.record);
        let claims = Box::pin(self.claims(&object, old, other)).await?;
        let migration = claims.migration(old)?;
        let (source, target) =
            (claims.of(migration, End::Source)?, claims.of(migration, End::Target)?);
        let of = |end: End| if end == End::Source { source } else { target };
        let received = [source, target].map(|it| it.map_or(0, |(_, open)| open.revision));
        if let Some(old) = old
            && self.has_ended(old, object.server, received).await
            && let Some(kept) = kept
        {
            let ended = self.forget(kept, object.server, asked).await?;
            return Ok(Drafted::Ended(Box::new(ended)));
        }
        let of_record = |end: End| {
            old.and_then(|record| match end {
                End::Source => Some(record.source_server_uuid),
                End::Target => record.target_server_uuid,
            })
        };
        let node = |end: End| {
            let cn = of(end).map(|(cn, _)| cn).or(of_record(end)).or(other);
            let is_named = of(end).is_some() || (cn.is_some() && cn == other);
            // One node has no two ends: the record may know none of the target's.
            let is_others = of(end.other()).map(|(cn, _)| cn).or(of_record(end.other())) == cn;
            let why = format!(
                "The agent of the {end}'s node does not report the migration as open; name the node: sdc-migrate adopt \
                 --other CN {vm}"
            );
            cn.filter(|_| is_named && !is_others).ok_or_else(|| Refused::precondition(&why))
        };
        let (from, to) = (node(End::Source)?, node(End::Target)?);
        let mut known = [CopyState::Silent, CopyState::Silent];
        for (at, (end, cn)) in [(End::Source, from), (End::Target, to)].into_iter().enumerate() {
            let (revision, nonce) = match of(end) {
                _ if self.is_revoked(cn) => {
                    known[at] = CopyState::Revoked;
                    continue;
                }
                // It was asked at the record's revision whether the migration has ended.
                Some((_, open)) => match old.map(|record| record.intent.revision) {
                    Some(revision) if revision > open.revision => (revision, None),
                    _ => (open.revision, open.nonce),
                },
                // What it has of the VM counts where it does not have the migration open, too.
                None if self.agents.is_alive(cn).await => (1, None),
                None => continue,
            };
            known[at] = self.observe(cn, About { migration, revision, nonce, vm, end }).await?;
        }
        let reserved = self.peers.reserved(&object.object).await?;
        let on = |cn: Uuid| object.server == Some(cn);
        let vmapi = if on(from) { Some(End::Source) } else { on(to).then_some(End::Target) };
        let now = self.clock.now();
        let word = Confirmation { by: self.operators, at: now };
        let [source_known, target_known] = known;
        let had = [End::Source, End::Target].map(|end| of(end).and_then(|(_, it)| it.power));
        let named = [(End::Source, from), (End::Target, to)].into_iter();
        let named = named.filter(|(_, cn)| other == Some(*cn)).map(|(end, _)| end).next();
        let facts = (vmapi, !reserved.is_empty());
        let judged = judge(&source_known, &target_known, facts, had, (&word, named));
        let adopted = judged.map_err(|why| Refused::precondition(&why.to_string()))?;
        let mut record = match old {
            Some(record) => record.clone(),
            None => self.new_record(&object, asked, Some(to), now),
        };
        let ends = self.records.ends.of_vm(vm).await?;
        let asked_with = ends.iter().filter(|it| it.row.migration == migration);
        let received = asked_with.map(|it| it.row.revision).chain(received);
        let revision = received.max().unwrap_or(0).max(record.intent.revision) + 1;
        let is_reserved = record.intent.reserved;
        // Which of them the migration reserved is unknown; late requests may still reserve some.
        let more = reserved.into_iter().filter(|it| !record.reserved_nics.contains(it));
        let more: Vec<_> = more.collect();
        record.reserved_nics.extend(more);
        (record.id, record.source_server_uuid, record.target_server_uuid) =
            (migration, from, Some(to));
        (record.phase, record.state) = (adopted.phase, adopted.state);
        record.error = adopted.error.map(str::to_owned);
        record.scheduled_timestamp = None;
        record.automatic = false;
        record.num_sync_phases = record.num_sync_phases.max(1);
        let nonce = Some(nonce());
        record.intent = Intent { revision, nonce, reserved: is_reserved, ..adopted.intent };
        let (phase, state, error) = (record.phase, record.state, record.error.clone());
        record.progress_history.push(Entry::new(EntryFields {
            kind: "progress".into(),
            phase,
            state: if state == State::Failed { State::Failed } else { State::Successful },
            current_progress: Some(100),
            total_progress: Some(100),
            message: Some("adopted from what the agents have".into()),
            started_timestamp: Some(now),
            job_uuid: None,
            finished_timestamp: Some(now),
            error,
            error_detail: None,
            disallow_retry: None,
            duration_ms: None,
        }));
        let known = [source_known, target_known];
        Ok(Drafted::Open(Box::new(Draft { kept, lock, record, known })))
    }

    /// Writes a record that was made.
    pub async fn keep(&self, draft: Draft) -> Result<Record, Refused> {
        let Draft { kept, lock, record, .. } = draft;
        let (vm, migration) = (record.vm_uuid, record.id);
        let (phase, state) = (record.phase.name(), record.state.name());
        tracing::warn!(%vm, %migration, phase, state, "an operator adopted a migration from what the agents have");
        for cn in std::iter::once(record.source_server_uuid).chain(record.target_server_uuid) {
            self.peers.release_left(cn, vm).await;
        }
        let record = match kept {
            Some(mut kept) => {
                kept.record = record;
                self.records.write(&mut kept, None).await?;
                kept.record
            }
            None => self.records.create(record, lock).await?.record,
        };
        for stranger in self.records.strangers.of_vm(vm).await? {
            if stranger.migration == migration {
                self.records.strangers.forget(&stranger).await?;
            }
        }
        self.wake.notify_one();
        Ok(record)
    }

    /// Returns what is known of a copy, asked with the revision that its agent received.
    async fn observe(&self, cn: Uuid, about: About) -> Result<CopyState, Refused> {
        match self.agents.observe(cn, &Observe { about, brief: false }).await {
            Ok(observed) => Ok(CopyState::Node(observed.node)),
            Err(error) if error.code() == Some(WAITS) => Ok(CopyState::Waits),
            Err(error) => {
                let why = format!("The agent of {cn} cannot report the state of its copy: {error}");
                Err(Refused::precondition(&why))
            }
        }
    }
}

#[cfg(test)]
mod tests;
