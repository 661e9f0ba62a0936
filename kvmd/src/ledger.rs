// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watched instances, the last verdict on each, and the journal that carries both to listeners. One
//! lock: a change, its sequence number and its event become visible together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use daemon::http::now_iso;
use daemon::journal::Journal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::verdict::{Rule, Verdict};

/// Verdicts kept for `/status`; the oldest goes first.
const VERDICTS: usize = 4096;
/// The ring's bounds: a verdict has a few hundred bytes.
const RING: usize = 8 << 20;

/// The state of watching an instance.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Being connected to.
    Dialing,
    /// Connected; QEMU has not greeted yet.
    Greeting,
    /// Connected; another client holds the monitor, so no events come.
    Queued,
    /// Events come.
    Watching,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dialing, Self::Greeting, Self::Queued, Self::Watching];
}

/// An instance, as `/status` and `ready` show it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// The state of watching it.
    pub state: State,
    /// Counts the connections of this daemon.
    pub generation: u64,
    /// When it was connected to.
    pub since: String,
    /// QEMU's process, where the system tells it.
    pub pid: Option<i32>,
    /// QEMU's version, if it told one.
    pub qemu: Option<String>,
    /// Whether its socket still exists under its name.
    pub reachable: bool,
}

/// What became of the marker.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Marker {
    /// It was written.
    Written,
    /// It was removed, or was not there.
    Removed,
    /// The admin path cleared it meanwhile: it was not written.
    Cleared,
    /// The instance runs again under this name: it was not touched.
    Superseded,
    /// It could not be written or removed.
    Failed,
    /// This instance has none.
    None,
}

/// A verdict with its circumstances.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The instance.
    pub name: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Whether it counts as the user's wish, by the rule in force.
    pub user: bool,
    /// That rule.
    pub rule: Rule,
    /// What became of the marker.
    pub marker: Marker,
    /// Where it comes from.
    pub source: Source,
    /// Which of this daemon's connections; 0 where there was none.
    pub generation: u64,
}

/// A verdict as it was told: an event of the stream.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictEvent {
    /// `verdict`.
    #[serde(rename = "type")]
    pub event: String,
    /// What was told.
    #[serde(flatten)]
    pub record: Record,
    /// When it was told.
    pub date: String,
    /// The event's number.
    pub seq: u64,
    /// The start of the daemon that told it.
    pub epoch: String,
}

/// The source of a verdict.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// QEMU's events.
    Qmp,
    /// The facts of a zone.
    Zone,
}

/// Counters since the start.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Connections made.
    pub connections: u64,
    /// Verdicts published.
    pub verdicts: u64,
    /// Verdicts that count as the user's wish.
    pub users: u64,
    /// Markers written.
    pub markers_written: u64,
    /// Markers that could not be written or removed.
    pub markers_failed: u64,
    /// Lines of monitors that could not be understood.
    pub bad_lines: u64,
    /// Connections that broke while QEMU went on running.
    pub broken: u64,
}

#[derive(Debug, Default)]
struct Inner {
    instances: BTreeMap<String, Instance>,
    verdicts: BTreeMap<String, Bytes>,
    order: std::collections::VecDeque<String>,
    counts: Counts,
    generation: u64,
    seq: u64,
}

/// The ledger; cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Mutex<Inner>>,
    /// The events.
    pub journal: Arc<Journal>,
    /// This start of the daemon.
    pub epoch: Arc<str>,
}

/// A copy of everything at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The instances.
    pub instances: BTreeMap<String, Instance>,
    /// The last verdict on each name, as its event's line.
    pub lines: Vec<Bytes>,
    /// The counters.
    pub counts: Counts,
    /// The last event it contains.
    pub seq: u64,
}

impl Snapshot {
    /// Returns the verdicts, parsed.
    pub fn verdicts(&self) -> Vec<Value> {
        self.parsed()
    }

    /// Returns the verdicts as they were told.
    pub fn told(&self) -> Vec<VerdictEvent> {
        self.parsed()
    }

    fn parsed<T: DeserializeOwned>(&self) -> Vec<T> {
        self.lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let epoch = id.get(..16).unwrap_or_default().into();
        Self { inner: Arc::default(), journal: Arc::new(Journal::new(RING)), epoch }
    }
}

impl Ledger {
    /// Records a connection; returns its generation.
    pub fn connected(&self, name: &str, pid: Option<i32>) -> u64 {
        let mut inner = self.lock();
        inner.generation += 1;
        inner.counts.connections += 1;
        let generation = inner.generation;
        let state = State::Greeting;
        let instance =
            Instance { state, generation, since: now_iso(), pid, qemu: None, reachable: true };
        inner.instances.insert(name.to_owned(), instance);
        generation
    }

    /// Changes an instance if this generation is still the latest of its name.
    pub fn edit(&self, name: &str, generation: u64, change: impl FnOnce(&mut Instance)) {
        let mut inner = self.lock();
        if let Some(instance) =
            inner.instances.get_mut(name).filter(|instance| instance.generation == generation)
        {
            change(instance);
        }
    }

    /// Records that events come now.
    pub fn watching(&self, name: &str, generation: u64, qemu: Option<&str>) {
        self.edit(name, generation, |instance| {
            instance.state = State::Watching;
            instance.qemu = qemu.map(str::to_owned);
        });
        let event =
            json!({"type": "watching", "name": name, "generation": generation, "qemu": qemu});
        self.push(&mut self.lock(), event);
    }

    /// Records that an instance's socket came or went.
    pub fn reachable(&self, name: &str, is: bool) {
        if let Some(instance) = self.lock().instances.get_mut(name) {
            instance.reachable = is;
        }
    }

    /// Records the end of a generation.
    pub fn gone(&self, name: &str, generation: u64) {
        let mut inner = self.lock();
        if inner.instances.get(name).is_some_and(|instance| instance.generation == generation) {
            inner.instances.remove(name);
        }
    }

    /// Changes the counters.
    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.lock().counts);
    }

    /// Publishes a verdict.
    pub fn publish(&self, record: &Record) {
        let mut inner = self.lock();
        inner.counts.verdicts += 1;
        inner.counts.users += u64::from(record.user);
        match record.marker {
            Marker::Written => inner.counts.markers_written += 1,
            Marker::Failed => inner.counts.markers_failed += 1,
            _ => {}
        }
        let mut event = json!({"type": "verdict"});
        if let (Some(event), Ok(Value::Object(fields))) =
            (event.as_object_mut(), serde_json::to_value(record))
        {
            event.extend(fields);
        }
        let line = self.push(&mut inner, event);
        if inner.verdicts.insert(record.name.clone(), line).is_none() {
            inner.order.push_back(record.name.clone());
        }
        while inner.order.len() > VERDICTS {
            if let Some(oldest) = inner.order.pop_front() {
                inner.verdicts.remove(&oldest);
            }
        }
        drop(inner);
        tracing::info!(
            instance = record.name,
            generation = record.generation,
            initiator = crate::verdict::word(&record.verdict.initiator),
            kind = crate::verdict::word(&record.verdict.kind),
            confidence = crate::verdict::word(&record.verdict.confidence),
            user = record.user,
            marker = crate::verdict::word(&record.marker),
            "verdict"
        );
    }

    /// Drops the verdict on an instance that was deleted (R10).
    pub fn deleted(&self, name: &str) {
        let mut inner = self.lock();
        if inner.verdicts.remove(name).is_some() {
            inner.order.retain(|known| known != name);
            self.push(&mut inner, json!({"type": "deleted", "name": name}));
        }
    }

    /// Returns a copy of everything.
    pub fn snapshot(&self) -> Snapshot {
        let inner = self.lock();
        Snapshot {
            instances: inner.instances.clone(),
            lines: inner
                .order
                .iter()
                .filter_map(|name| inner.verdicts.get(name))
                .cloned()
                .collect(),
            counts: inner.counts,
            seq: inner.seq,
        }
    }

    /// Appends an event; returns its line.
    fn push(&self, inner: &mut Inner, mut event: Value) -> Bytes {
        inner.seq += 1;
        if let Some(fields) = event.as_object_mut() {
            fields.insert("date".to_owned(), now_iso().into());
            fields.insert("seq".to_owned(), inner.seq.into());
            fields.insert("epoch".to_owned(), (*self.epoch).into());
        }
        let line = Bytes::from(format!("{event}\n"));
        self.journal.push(line.clone());
        line
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
