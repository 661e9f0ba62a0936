// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known and what was decided: the instances being watched, the last verdict on each, and
//! the journal that carries both to listeners. One lock; a change, its sequence number and its
//! event become visible together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use daemon::http::now_iso;
use daemon::journal::{Journal, Limits};
use serde::Serialize;
use serde_json::{Value, json};

use crate::verdict::{Rule, Verdict};

/// Verdicts kept for `/status`; the oldest goes first.
const VERDICTS: usize = 4096;
/// The ring's bounds: a verdict has a few hundred bytes.
const RING: Limits = Limits { bytes: 8 << 20, min_events: 1024 };

/// How far the watching of an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Being connected to.
    Dialing,
    /// Connected; QEMU has not greeted yet.
    Greeting,
    /// Connected; somebody else holds the monitor, nothing would come.
    Queued,
    /// Events come.
    Watching,
}

/// An instance, as `/status` and `ready` tell it.
#[derive(Clone, Debug, Serialize)]
pub struct Instance {
    /// How far.
    pub state: State,
    /// Counts the connections of this daemon.
    pub generation: u64,
    /// When it was connected to.
    pub since: String,
    /// QEMU's process, where the system tells.
    pub pid: Option<i32>,
    /// QEMU's version, where it told.
    pub qemu: Option<String>,
    /// Whether its socket is still there under its name: another QEMU may have taken it along.
    pub reachable: bool,
}

/// What became of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Marker {
    /// It is there now.
    Written,
    /// It is not.
    Removed,
    /// The admin path cleared it meanwhile: it was not written.
    Cleared,
    /// The instance runs again under this name: it was not touched.
    Superseded,
    /// The directory did not take it.
    Failed,
    /// There is none for this instance.
    None,
}

/// A verdict with its circumstances.
#[derive(Clone, Debug, Serialize)]
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

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// QEMU's own words.
    Qmp,
    /// The facts of a zone.
    Zone,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Connections made.
    pub connections: u64,
    /// Verdicts given.
    pub verdicts: u64,
    /// Of these, the users' wishes.
    pub users: u64,
    /// Markers written.
    pub markers_written: u64,
    /// Markers that could not be written or removed.
    pub markers_failed: u64,
    /// Lines of monitors that could not be understood.
    pub bad_lines: u64,
    /// Connections that broke while their QEMU lived on.
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

/// All of it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Mutex<Inner>>,
    /// The events.
    pub journal: Arc<Journal>,
    /// This start of the daemon.
    pub epoch: Arc<str>,
}

/// A moment's copy, for a stream's first line.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The instances.
    pub instances: BTreeMap<String, Instance>,
    /// The last verdict on each name, as it was told.
    pub lines: Vec<Bytes>,
    /// What was counted.
    pub counts: Counts,
    /// The last event that is contained.
    pub seq: u64,
}

impl Snapshot {
    /// The verdicts, read again.
    pub fn verdicts(&self) -> Vec<Value> {
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
    /// A connection begins: gives its generation.
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

    /// Changes what is told of a generation, if it is still the latest of its name.
    pub fn edit(&self, name: &str, generation: u64, change: impl FnOnce(&mut Instance)) {
        let mut inner = self.lock();
        if let Some(instance) =
            inner.instances.get_mut(name).filter(|instance| instance.generation == generation)
        {
            change(instance);
        }
    }

    /// Events come now.
    pub fn watching(&self, name: &str, generation: u64, qemu: Option<&str>) {
        self.edit(name, generation, |instance| {
            instance.state = State::Watching;
            instance.qemu = qemu.map(str::to_owned);
        });
        let event =
            json!({"type": "watching", "name": name, "generation": generation, "qemu": qemu});
        self.tell(&mut self.lock(), event);
    }

    /// Its socket's file came or went.
    pub fn reachable(&self, name: &str, is: bool) {
        if let Some(instance) = self.lock().instances.get_mut(name) {
            instance.reachable = is;
        }
    }

    /// A generation ended.
    pub fn gone(&self, name: &str, generation: u64) {
        let mut inner = self.lock();
        if inner.instances.get(name).is_some_and(|instance| instance.generation == generation) {
            inner.instances.remove(name);
        }
    }

    /// Counts something.
    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.lock().counts);
    }

    /// Publishes a verdict: once for each generation.
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
        let told = self.tell(&mut inner, event);
        if inner.verdicts.insert(record.name.clone(), told).is_none() {
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

    /// An instance is no more: what was said of it is dropped (R10).
    pub fn deleted(&self, name: &str) {
        let mut inner = self.lock();
        if inner.verdicts.remove(name).is_some() {
            inner.order.retain(|known| known != name);
            self.tell(&mut inner, json!({"type": "deleted", "name": name}));
        }
    }

    /// All of it as it is now.
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

    /// Appends an event; gives its line.
    fn tell(&self, inner: &mut Inner, mut event: Value) -> Bytes {
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
