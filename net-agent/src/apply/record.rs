// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reading a record, asking VMAPI, and what all writes share.

use daemon::agent;
use daemon::log::clip;
use daemon::timing::policy;
use sdc_clients::http::Versioned;
use sdc_clients::napi::Nic;
use sdc_clients::retry::Backoff;
use sdc_clients::{Class, Error, MacAddr};
use serde_json::{Map, Value};

use crate::history::Entry;
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::plan::{Reason, Refusal, Verdict, Wish};
use crate::status::Count;

/// Attempts (read, decide, write) before a record is left to the next pass.
const ATTEMPTS: u32 = 5;

/// What NAPI has under a MAC.
pub(crate) enum Found {
    Record(Box<Versioned<Nic>>),
    Missing,
}

/// Reads a record.
pub(crate) async fn read(parts: &Parts, mac: MacAddr) -> Result<Found, Reason> {
    match parts.clients.napi.get_nic(mac).await {
        Ok(fresh) if fresh.value.mac == mac => Ok(Found::Record(Box::new(fresh))),
        Ok(fresh) => Err(Reason::WrongRecord { asked: mac, got: fresh.value.mac }),
        Err(err) if err.is_not_found_resource() => Ok(Found::Missing),
        Err(err) => Err(parts.failed(&err)),
    }
}

/// Asks VMAPI about a VM; never with `sync=true`, which could itself mark VMs destroyed.
#[tracing::instrument(skip(parts))]
pub(crate) async fn ask_vmapi(parts: &Parts, vm: &str) -> Verdict {
    let Some(vmapi) = &parts.clients.vmapi else {
        return Verdict::NoAnswer("no VMAPI is configured".to_owned());
    };
    match vmapi.get_vm(vm).await {
        Ok(found) if found.uuid == vm => Verdict::of(&found),
        Ok(found) => Verdict::NoAnswer(format!("it answered about {}", found.uuid)),
        // Any web server answers 404; VMAPI's has this code (fixtures/vmapi-transcripts.jsonl).
        Err(err) if err.is_not_found_resource() && err.code() == Some("ResourceNotFound") => {
            Verdict::Unknown
        }
        Err(err) => Verdict::NoAnswer(parts.failed(&err).to_string()),
    }
}

/// The attempts to write one record, with growing pauses between them.
pub(super) struct Attempts {
    backoff: Option<Backoff>,
    policy: sdc_clients::retry::Policy,
}

impl Attempts {
    pub(super) fn new(parts: &Parts) -> Self {
        Self { backoff: None, policy: policy(parts.config.times.conflict_retry, Some(ATTEMPTS)) }
    }

    /// Waits before the next attempt, but not before the first. Returns false if there were enough.
    pub(super) async fn next(&mut self, parts: &Parts) -> bool {
        let Some(backoff) = &mut self.backoff else {
            self.backoff = Some(Backoff::new(&self.policy, parts.random.fork()));
            return true;
        };
        let Some(wait) = backoff.next_growing_delay() else { return false };
        tokio::time::sleep(wait).await;
        true
    }
}

/// Returns what came of a failed write, or none if the record is to be read again.
pub(super) fn conflict(parts: &Parts, err: &Error, sent: &[&str]) -> Option<Outcome> {
    let is_overlapped = err.is_precondition_failed() || err.is_duplicate_of_unsent(sent);
    if is_overlapped || err.may_have_applied() {
        parts.status.count(Count::Conflicts);
        return None;
    }
    let why = parts.failed(err);
    // Not taken for the moment, and certainly not done.
    if matches!(err.class(), Class::Connect | Class::Unavailable | Class::Timeout(_)) {
        return None;
    }
    // NAPI refuses the request: sent again at once, it would be refused again.
    let refused = matches!(err.status(), Some(400..=407 | 410..=411 | 413..=424));
    Some(if refused { Outcome::Refused(why) } else { Outcome::Failed(why) })
}

/// Counts and logs that a record is left alone.
pub(super) fn left(parts: &Parts, why: Reason) -> Outcome {
    parts.status.count(Count::Skipped);
    tracing::info!(reason = %why, "leaving the record alone");
    Outcome::Left(why)
}

/// Counts and logs that a write is deferred.
pub(super) fn deferred(parts: &Parts, why: Reason) -> Outcome {
    parts.status.count(Count::Deferred);
    tracing::info!(reason = %why, "deferring the record");
    Outcome::Deferred(why)
}

/// Counts and logs that there was no permit for this request.
pub(super) fn refused(parts: &Parts, refusal: Refusal, request: &dyn std::fmt::Display) -> Outcome {
    if refusal != Refusal::Agent(agent::Refusal::ReportMode) {
        return deferred(parts, refusal.into());
    }
    parts.status.count(Count::Reported);
    tracing::info!(%request, "report mode: not sending a write");
    Outcome::Left(refusal.into())
}

/// What is recorded of one request: a line of the audit log, which is written at every log level, so it
/// carries the fields of its span itself, and an entry of the history.
pub(super) struct Audit<'a> {
    pub(super) vm: &'a str,
    pub(super) rule: &'a str,
    pub(super) etag: Option<&'a str>,
    /// The record as it was read.
    pub(super) nic: &'a Nic,
    /// What is written; none for a delete.
    pub(super) wish: Option<&'a Wish>,
}

impl Audit<'_> {
    /// Records what came of the request; `why` is the evidence, or why it failed.
    pub(super) async fn write(&self, parts: &Parts, outcome: &str, why: &str) {
        let Self { vm, rule, etag, nic, wish } = *self;
        let (mac, etag) = (nic.mac, etag.unwrap_or_default());
        let request = wish.map_or_else(|| "DELETE".to_owned(), ToString::to_string);
        tracing::info!(target: daemon::log::AUDIT, audit = true, %mac, vm, rule, etag, outcome, request, why, "write");
        let mut old = fields(nic);
        let new = wish.map(|wish| fields(&wish.update()));
        if let Some(new) = &new {
            old.retain(|field, _| new.contains_key(field));
        }
        let [vm, outcome, rule, why] = [vm, outcome, rule, why].map(clip);
        let at = daemon::wall::now();
        parts.history.note(Entry { at, mac, vm, outcome, rule, why, old, new }).await;
    }
}

fn fields(value: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
