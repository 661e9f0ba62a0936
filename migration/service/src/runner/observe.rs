// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The facts of a round: both agents and VMAPI are asked with the record's revision.
//!
//! Both nodes are asked with the record's revision. An agent that received a later one refuses, which stops a service
//! that was replaced and does not know it.

use sdc_clients::{Class, Error};
use serde_json::{Map, Value};
use tokio::join;
use uuid::Uuid;

use crate::agents::is_answer;
use crate::state::Service;
use migration_core::bring_over::settings;
use migration_core::dead::Contact;
use migration_core::intent::{End, Intent, Runs};
use migration_core::machine::{Facts, Node, Reason, Report, SettingsMatch, Wait};
use migration_core::protocol::{About, Looked, Observe, Observed};
use migration_core::record::{Phase, Record, node_of};

/// What was seen in a round.
#[derive(Clone, Debug)]
pub struct Round {
    /// The facts that are judged.
    pub facts: Facts,
    /// The answer of the source's agent.
    pub source: Option<Observed>,
    /// The answer of the target's agent.
    pub target: Option<Observed>,
    /// The end whose agent received a later round.
    pub ahead: Option<End>,
    /// The ends whose agents know that the migration is over.
    pub over: Vec<End>,
    /// An agent reads still; the program that takes so long, where one runs.
    pub working: Option<Option<Runs>>,
    /// What is known, beside silence, of the agents that did not report the state of their copies.
    pub errors: Vec<(End, String)>,
}

impl Round {
    /// Returns what the round waits for, as a sentence: an agent that answers with an error is not silent.
    pub fn waits_for(&self, wait: &Wait) -> String {
        match self.errors.iter().find(|(end, _)| wait.end() == Some(*end)) {
            Some((_, error)) => error.clone(),
            None => wait.to_string(),
        }
    }

    /// Returns a reason for people, with the names that only the round knows.
    pub fn sentence(&self, reason: &Reason) -> String {
        let names = |end: &End| self.facts.node(*end).map(|node| node.in_the_way.join(", "));
        match reason {
            Reason::InTheWay(end) => format!("{reason}: {}", names(end).unwrap_or_default()),
            reason => reason.to_string(),
        }
    }

    /// Returns the VM's object as the agent of a node has just read it.
    pub fn object(&self, end: End) -> Option<&Map<String, Value>> {
        let seen = match end {
            End::Source => &self.source,
            End::Target => &self.target,
        };
        seen.as_ref().and_then(|seen| seen.object.as_ref())
    }
}

/// Returns what an order or an observation is about.
pub fn about(record: &Record, end: End) -> About {
    let Intent { revision, nonce, .. } = record.intent;
    About { migration: record.id, revision, nonce, vm: record.vm_uuid, end }
}

/// Returns true if the agent received a later round than the one that asks.
pub fn is_old(error: &Error) -> bool {
    error.status() == Some(409) && error.code() == Some("OldOrder")
}

/// Observes both nodes and VMAPI, at the same time.
pub async fn observe(service: &Service, record: &Record, brief: bool) -> Round {
    let vm = record.vm_uuid.to_string();
    let (source, target, vmapi) = join!(
        ask(service, record, End::Source, brief),
        ask(service, record, End::Target, brief),
        service.peers.vmapi.record(&vm),
    );
    let server = vmapi.ok().and_then(|vm| vm.get("server_uuid")?.as_str()?.parse::<Uuid>().ok());
    let at = |end: End| node_of(record, end).is_some() && node_of(record, end) == server;
    let vmapi = [End::Source, End::Target].into_iter().find(|end| at(*end));
    let (mut ahead, mut errors, mut working) = (None, Vec::new(), None);
    let mut seen = |end: End, answer: Answer| match answer {
        Answer::NoNode => (Report::Node(Node::default()), None),
        Answer::Observed(observed) => (Report::Node(observed.node.clone()), Some(*observed)),
        Answer::Silence => (Report::Silent, None),
        Answer::Working(runs) => {
            working = Some(working.take().flatten().or(runs));
            (Report::Unwell, None)
        }
        Answer::Failed { error, is_alive } => {
            ahead = ahead.or(is_old(&error).then_some(end));
            tracing::warn!(vm = %record.vm_uuid, reason = %error, "an agent did not report its node's state; the round goes on without it");
            if error.class() == Class::NoAddress {
                errors
                    .push((end, format!("the {end}'s node cannot be asked: {}", error.message())));
            }
            if !is_alive {
                return (Report::Silent, None);
            }
            let why = error.in_words();
            errors.push((end, format!("migration-agent on the {end}'s node fails: {why}")));
            (Report::Unwell, None)
        }
    };
    let ((source, source_report), (target, target_report)) =
        (seen(End::Source, source), seen(End::Target, target));
    let objects = (source_report.as_ref(), target_report.as_ref());
    let objects = objects
        .0
        .and_then(|it| it.object.as_ref())
        .zip(objects.1.and_then(|it| it.object.as_ref()));
    let settings =
        objects.map_or(SettingsMatch::Differ, |(source, target)| settings(source, target));
    let dated = objects.is_none_or(|(source, target)| is_dated(source, target));
    let reserved = is_reserved(record);
    let facts = Facts { source, target, vmapi, reserved, settings, dated };
    let reports = [(End::Source, &source_report), (End::Target, &target_report)].into_iter();
    let over = reports.filter(|(_, it)| it.as_ref().is_some_and(|it| it.over));
    let over = over.map(|(end, _)| end).collect();
    Round { facts, source: source_report, target: target_report, ahead, over, working, errors }
}

/// Returns true if the target was created when the source was, or that time is unknown.
fn is_dated(source: &Map<String, Value>, target: &Map<String, Value>) -> bool {
    let [from, to] = [source, target].map(|vm| vm.get("create_timestamp"));
    from.is_none() || to.is_none() || from == to
}

/// What came of a question to an agent.
enum Answer {
    /// The target is not chosen.
    NoNode,
    /// What is true.
    Observed(Box<Observed>),
    /// It reads still.
    Working(Option<Runs>),
    /// The node was declared dead, and gives no sign of life.
    Silence,
    /// The state of the copy was not reported.
    Failed { error: Error, is_alive: bool },
}

/// Asks the agent of a copy. One that was declared dead is waited for briefly, and any answer of it, also an error,
/// reports that it is not. Where an abort may leave the copy, nobody is asked whose key was revoked.
async fn ask(service: &Service, record: &Record, end: End, brief: bool) -> Answer {
    let Some(cn) = node_of(record, end) else { return Answer::NoNode };
    let is_declared = record.intent.is_dead(end);
    let is_left =
        end == End::Target && record.phase == Phase::Abort && record.intent.discard.is_some();
    if is_left && service.is_revoked(cn) || is_declared && !service.hears(cn).await {
        return Answer::Silence;
    }
    let observed = service.agents.look(cn, &Observe { about: about(record, end), brief }).await;
    let what = if observed.is_ok() { Contact::Copy } else { Contact::Error };
    if observed.as_ref().err().is_none_or(is_answer) {
        service.contacts.note(cn, what, service.clock.now()).await;
    }
    match observed {
        Ok(Looked::Observed(observed)) => Answer::Observed(observed),
        Ok(Looked::Working { working }) => Answer::Working(working.runs.map(|runs| runs.on(end))),
        Err(error) => {
            let is_alive = is_declared || is_answer(&error);
            Answer::Failed { error, is_alive }
        }
    }
}

/// Whether the reservations stand: all of them on the way to a switch, and any of them on every other way, where
/// they are to go.
///
/// NAPI is not asked: the record names an address before it is reserved, and until it is free again.
fn is_reserved(record: &Record) -> bool {
    let intent = &record.intent;
    let is_ahead = record.phase == Phase::Switch
        && intent.undo.is_none()
        && intent.rescue.is_none()
        && !intent.target_shown;
    intent.reserved || (!is_ahead && !record.reserved_nics.is_empty())
}
