// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The history: what has ended, in a bucket of its own that no round reads.
//!
//! An entry is written in the batch that ends what it is about, so that there is one of each end after any crash. It
//! goes when it is older than `history_keep`, and where one VM, or all that is no VM's, has 500 of them.

use std::time::Duration;

use sdc_clients::migrations::{Ended, EndedStep, HistoryQuery};
use serde_json::{Map, Value};
use store::{Batch, Bucket, Error, Expect, Fence, Query, Schema, Store};
use uuid::Uuid;

use super::through::Through;
use migration_core::downtime;
use migration_core::intent::Asker;
use migration_core::machine::Ending;
use migration_core::record::{Entry, Phase, Record};
use migration_core::time::Time;

const HISTORY: Schema = Schema {
    bucket: "migration_history",
    version: 1,
    fields: &["ended", "vm_uuid", "owner_uuid"],
    lists: &["cn_uuids"],
};

/// So many entries of one VM are kept, and of all that is no VM's together.
const MOST_OF_ONE: usize = 500;
/// So many phases of an operation are kept: the last ones.
const MOST_STEPS: usize = 64;
/// So much of an error is kept.
const MOST_TEXT: usize = 2000;
/// So many entries are removed at once.
const PRUNED: usize = 100;

/// How long an entry is kept by default.
pub const KEEP: Duration = Duration::from_secs(400 * 86_400);

/// The entries.
#[derive(Clone, Debug)]
pub struct History(Store, Bucket<Ended>);

impl History {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<History, Error> {
        Ok(History(store.clone(), Bucket::open(store, HISTORY).await?))
    }

    /// Adds an entry to the batch that ends what it is about. Where there are as many as may be, the oldest goes.
    pub async fn put_in(&self, batch: &mut Batch, ended: &Ended) -> Result<(), Error> {
        let vm = ended.vm_uuid.clone().map_or(Value::Null, Value::String);
        let of_one = Query::all().with("vm_uuid", vm).by("ended").limit(MOST_OF_ONE);
        let page = self.1.find(of_one).await?;
        if page.next.is_some() || page.records.len() >= MOST_OF_ONE {
            for oldest in page.records.iter().take(1).filter(|it| it.key != ended.id) {
                self.1.delete_in(batch, &oldest.key, Expect::Etag(oldest.etag.clone()))?;
            }
        }
        self.1.put_in(batch, &ended.id, Expect::Anything, ended)
    }

    /// Stores an entry of something that has no record.
    pub async fn put(&self, ended: &Ended) -> Result<(), Error> {
        let mut batch = Batch::new();
        self.put_in(&mut batch, ended).await?;
        self.0.commit(batch).await.map(drop)
    }

    /// Returns the newest entries that are wanted.
    pub async fn list(&self, wanted: &HistoryQuery, limit: usize) -> Result<Vec<Ended>, Error> {
        let mut query = Query::all();
        for (field, value) in [
            ("vm_uuid", &wanted.vm_uuid),
            ("cn_uuids", &wanted.cn_uuid),
            ("owner_uuid", &wanted.owner_uuid),
        ] {
            if let Some(value) = value {
                query = query.with(field, value.clone());
            }
        }
        let query = query.by("ended").descending().limit(limit);
        let (mut found, mut marker) = (Vec::new(), None);
        loop {
            let page = match marker.take() {
                Some(marker) => query.clone().after(marker),
                None => query.clone(),
            };
            let page = self.1.find(page).await?;
            for unreadable in &page.unreadable {
                tracing::error!(reason = %unreadable, "cannot read an entry of the history; leaving it out");
            }
            let since = wanted.since.as_deref().unwrap_or_default();
            for row in page.records {
                if row.value.ended.as_str() < since || found.len() == limit {
                    return Ok(found);
                }
                found.push(row.value);
            }
            marker = page.next;
            if marker.is_none() {
                return Ok(found);
            }
        }
    }

    /// Removes the entries that ended longer ago than `keep`.
    pub async fn prune(&self, keep: Duration, now: Time, fence: &Fence) -> Result<(), Error> {
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let oldest = now.plus(keep.saturating_neg()).to_string();
        loop {
            let page = self.1.find(Query::all().by("ended").limit(PRUNED)).await?;
            let old: Vec<_> = page.records.iter().filter(|row| row.value.ended < oldest).collect();
            if old.is_empty() {
                return Ok(());
            }
            let mut batch = Batch::new();
            batch.require(fence);
            for row in &old {
                self.1.delete_in(&mut batch, &row.key, Expect::Etag(row.etag.clone()))?;
            }
            self.0.commit(batch).await?;
        }
    }
}

/// Returns what an ending is called; none where the migration goes on.
pub fn named(record: &Record, ending: &Ending) -> Option<(&'static str, &'static str)> {
    let is_rescue = record.intent.rescue.is_some();
    Some(match ending {
        Ending::Begun | Ending::Synced | Ending::Paused => return None,
        Ending::RolledBack { .. } | Ending::Finalized { .. } if is_rescue => ("rescue", SUCCESSFUL),
        Ending::Switched => ("migrate", SUCCESSFUL),
        Ending::RolledBack { .. } => ("rollback", SUCCESSFUL),
        Ending::Finalized { .. } => ("finalize", SUCCESSFUL),
        Ending::Aborted => ("abort", SUCCESSFUL),
        Ending::Failed(_) => (running(record), FAILED),
    })
}

/// How something ended.
pub const SUCCESSFUL: &str = "successful";
pub const FAILED: &str = "failed";

/// Returns what the operation that runs is called.
pub fn running(record: &Record) -> &'static str {
    match &record.intent {
        intent if intent.finalize => "finalize",
        intent if intent.rescue.is_some() => "rescue",
        _ => record.phase.name(),
    }
}

/// Returns the entry of an operation that has ended, and removes its details from the record.
pub fn of(record: &mut Record, (what, outcome): (&str, &str), now: Time) -> Ended {
    let asker = record.intent.asker.take();
    let is_rollback = what == Phase::Rollback.name();
    let is_of_it = |entry: &&Entry| !is_rollback || entry.phase == Phase::Rollback;
    let steps: Vec<EndedStep> = record.progress_history.iter().filter(is_of_it).map(step).collect();
    let skipped = steps.len().saturating_sub(MOST_STEPS);
    let began = match what {
        "finalize" | "rescue" => asker.as_ref().map(|asker| asker.at.to_string()),
        _ => steps.first().and_then(|step| step.began.clone()),
    };
    let cns = std::iter::once(record.source_server_uuid).chain(record.target_server_uuid);
    let cn_uuids = cns.map(|cn| cn.to_string()).collect();
    let (source, target) = (Some(record.source_server_uuid), record.target_server_uuid);
    // A rollback goes the other way.
    let (from, to) = if is_rollback { (target, source) } else { (source, target) };
    let Asker { by, program, .. } = asker.unwrap_or(Asker { by: None, program: None, at: now });
    Ended {
        migration: Some(record.id.to_string()),
        vm_uuid: Some(record.vm_uuid.to_string()),
        owner_uuid: record.owner_uuid.map(|owner| owner.to_string()),
        cn_uuids,
        from: from.map(|cn| cn.to_string()),
        to: to.map(|cn| cn.to_string()),
        began,
        by,
        program,
        bytes: record.intent.sent.take(),
        downtime_ms: downtime::taken(record),
        error: record.error.as_deref().map(clipped),
        steps: steps.into_iter().skip(skipped).collect(),
        ..entry(what, outcome, &record.id.to_string(), now)
    }
}

/// Returns the entry of something that is no migration's, about a node or the data centre.
pub fn about(
    what: &str,
    cn: Option<Uuid>,
    through: &Through,
    details: Map<String, Value>,
    now: Time,
) -> Ended {
    let cn = cn.map(|cn| cn.to_string());
    let about = cn.clone().unwrap_or_else(|| "all".to_owned());
    let Through { by, program } = through.clone();
    let cn_uuids = cn.into_iter().collect();
    Ended { cn_uuids, by, program, other: details, ..entry(what, SUCCESSFUL, &about, now) }
}

fn entry(what: &str, outcome: &str, of: &str, now: Time) -> Ended {
    Ended {
        id: format!("{now}-{what}-{of}"),
        what: what.to_owned(),
        outcome: outcome.to_owned(),
        ended: now.to_string(),
        ..Ended::default()
    }
}

fn step(entry: &Entry) -> EndedStep {
    EndedStep {
        phase: entry.phase.name().to_owned(),
        state: entry.state.name().to_owned(),
        began: entry.started_timestamp.map(|at| at.to_string()),
        ended: entry.finished_timestamp.map(|at| at.to_string()),
        error: entry.error.as_deref().map(clipped),
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}
