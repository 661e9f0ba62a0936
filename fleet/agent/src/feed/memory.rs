// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A feed in memory, as unkind as the real one: it refuses wrong expectations, knows the id of a message for two
//! minutes and no longer, also of one that it never stored, has so many bytes and no more, loses acknowledgements,
//! answers from a server that is behind, and its streams can be deleted or restored, or lose what they acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sdc_clients::fleet::{CHANGES, FleetError, KV_NODES, Labels, Stored, VMS};
use tokio::time::Instant;

use super::seam::{Answer, Feed};

/// How long JetStream knows the id of a message.
const DUPLICATES: Duration = Duration::from_secs(120);

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive.
    NotSent,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// A read is answered by a server that lacks the newest message of the subject.
    Behind,
    /// A publish is lost with the lead of the server that took it. That server leads again, and knows the message's id.
    Staged,
}

/// A message of `CHANGES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub subject: String,
    /// Itself.
    pub stored: Stored,
}

#[derive(Debug, Default)]
struct Streams {
    /// None: deleted.
    changes: Option<VecDeque<Kept>>,
    vms: Option<BTreeMap<String, Stored>>,
    nodes: BTreeMap<String, Stored>,
    last: u64,
    /// `VMS` has numbers of its own.
    vms_last: u64,
    ids: BTreeMap<String, (Instant, u64)>,
    /// The most bytes of bodies, beyond which JetStream has no room.
    room: Option<usize>,
    faults: VecDeque<Option<Fault>>,
    requests: u64,
}

/// The feed. Its tests reach in.
#[derive(Debug)]
pub struct Memory {
    streams: Mutex<Streams>,
    largest: usize,
}

impl Default for Memory {
    fn default() -> Self {
        let memory = Self { streams: Mutex::default(), largest: 1 << 20 };
        memory.make();
        memory
    }
}

impl Memory {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A feed that takes messages of at most this many bytes.
    pub fn of_largest(largest: usize) -> Self {
        Self { largest, ..Self::default() }
    }

    /// Makes the streams that are not there. A `CHANGES` that is made again begins with 1, and `VMS` with it.
    pub fn make(&self) {
        let mut streams = self.streams();
        if streams.changes.is_none() {
            let all = (Some(VecDeque::new()), Some(BTreeMap::new()));
            (streams.changes, streams.vms) = all;
            (streams.last, streams.vms_last) = (0, 0);
            streams.ids.clear();
        }
        if streams.vms.is_none() {
            streams.vms = Some(BTreeMap::new());
            streams.vms_last = 0;
            let kept: Vec<Kept> = streams.changes.iter().flatten().cloned().collect();
            kept.into_iter().for_each(|kept| streams.source(kept));
        }
    }

    pub fn delete(&self, stream: &str) {
        let mut streams = self.streams();
        match stream {
            CHANGES => streams.changes = None,
            VMS => streams.vms = None,
            _ => streams.nodes.clear(),
        }
    }

    /// Restores `CHANGES` and `VMS` to what they were before the last messages.
    pub fn restore_before(&self, messages: usize) {
        let mut streams = self.streams();
        let kept = streams.changes.get_or_insert_default();
        let len = kept.len().saturating_sub(messages);
        kept.truncate(len);
        let last = kept.back().map_or(0, |kept| kept.stored.seq);
        streams.last = last;
        streams.ids.retain(|_, (_, seq)| *seq <= last);
        streams.vms = None;
        drop(streams);
        self.make();
    }

    /// Loses messages that it acknowledged, as a server that becomes the leader without them does; messages of other
    /// nodes take their numbers. The last `but` messages stay.
    pub fn lose(&self, messages: usize, but: usize) {
        let mut streams = self.streams();
        let kept = streams.changes.get_or_insert_default();
        let end = kept.len().saturating_sub(but);
        let lost: Vec<Kept> = kept.drain(end.saturating_sub(messages)..end).collect();
        let kept = kept.clone();
        for Kept { subject, stored } in lost {
            streams.ids.retain(|_, (_, seq)| *seq != stored.seq);
            let last = kept.iter().rev().find(|kept| kept.subject == subject).cloned();
            if last.as_ref().is_some_and(|last| last.stored.seq > stored.seq) {
                continue;
            }
            if let Some(vms) = &mut streams.vms {
                vms.remove(&subject);
            }
            last.into_iter().for_each(|kept| streams.source(kept));
        }
    }

    /// `VMS` loses what it has of a subject, or has an earlier message of it again.
    pub fn lose_shown(&self, subject: &str, earlier: Option<Stored>) {
        let vms = &mut self.streams().vms;
        match (vms, earlier) {
            (Some(vms), Some(earlier)) => drop(vms.insert(subject.to_owned(), earlier)),
            (Some(vms), None) => drop(vms.remove(subject)),
            (None, _) => {}
        }
    }

    /// Drops the oldest messages of `CHANGES`, as its limits do.
    pub fn age_out(&self, messages: usize) {
        let mut streams = self.streams();
        if let Some(kept) = &mut streams.changes {
            kept.drain(..messages.min(kept.len()));
        }
    }

    /// Leaves room for so many bytes in all.
    pub fn limit(&self, bytes: Option<usize>) {
        self.streams().room = bytes;
    }

    /// Lets the next requests go wrong like this, one after another; none: that one goes well.
    pub fn fault(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.streams().faults.extend(faults);
    }

    /// Takes back what was to go wrong.
    pub fn heal(&self) {
        let mut streams = self.streams();
        streams.faults.clear();
        streams.room = None;
    }

    /// Returns `CHANGES`.
    pub fn changes(&self) -> Vec<Kept> {
        self.streams().changes.iter().flatten().cloned().collect()
    }

    /// Returns `VMS`.
    pub fn vms(&self) -> BTreeMap<String, Stored> {
        self.streams().vms.clone().unwrap_or_default()
    }

    /// Returns a node's entry.
    pub fn node(&self, cn: &str) -> Option<Stored> {
        self.streams().nodes.get(cn).cloned()
    }

    /// Returns how many requests there were.
    pub fn requests(&self) -> u64 {
        self.streams().requests
    }

    /// Another client publishes.
    pub fn intrude(&self, subject: &str, labels: Option<Labels>, body: &str) {
        let mut streams = self.streams();
        streams.store(subject, labels, Bytes::copy_from_slice(body.as_bytes()));
    }

    /// Carries a request out, or lets it go wrong.
    fn run<T>(
        &self,
        what: impl FnOnce(&mut Streams, Option<Fault>) -> Result<T, FleetError>,
    ) -> Result<T, FleetError> {
        let mut streams = self.streams();
        streams.requests += 1;
        let fault = streams.faults.pop_front().flatten();
        if fault == Some(Fault::NotSent) {
            return Err(FleetError::Away("nothing was sent".to_owned()));
        }
        let done = what(&mut streams, fault);
        match fault {
            Some(Fault::AnswerLost) => Err(FleetError::Away("the answer was lost".to_owned())),
            _ => done,
        }
    }
}

impl Streams {
    fn store(&mut self, subject: &str, labels: Option<Labels>, body: Bytes) -> u64 {
        self.last += 1;
        let stored = Stored { seq: self.last, labels, body };
        let kept = Kept { subject: subject.to_owned(), stored };
        self.source(kept.clone());
        if let Some(changes) = &mut self.changes {
            changes.push_back(kept);
        }
        self.last
    }

    /// `VMS` takes a message of `CHANGES`.
    fn source(&mut self, Kept { subject, mut stored }: Kept) {
        if let Some(vms) = &mut self.vms {
            self.vms_last += 1;
            stored.seq = self.vms_last;
            vms.insert(subject, stored);
        }
    }

    fn publish(
        &mut self,
        subject: &str,
        labels: &Labels,
        body: Bytes,
        expected: u64,
        fault: Option<Fault>,
    ) -> Result<u64, FleetError> {
        let now = Instant::now();
        let Some(changes) = &self.changes else {
            return Err(FleetError::NoStream(subject.to_owned()));
        };
        self.ids.retain(|_, (at, _)| now.duration_since(*at) < DUPLICATES);
        let id = labels.id(subject, expected);
        if self.ids.contains_key(&id) {
            // As `Wire` reads this answer.
            return match self.last(CHANGES, subject, None) {
                Some(stored) if stored.has(labels, expected) => Ok(stored.seq),
                _ => Err(FleetError::Missing(subject.to_owned())),
            };
        }
        if fault == Some(Fault::Staged) {
            self.ids.insert(id, (now, 0));
            return Err(FleetError::Away("the server does not lead any more".to_owned()));
        }
        let held: usize = changes.iter().map(|kept| kept.stored.body.len()).sum();
        if self.room.is_some_and(|room| held + body.len() > room) {
            return Err(FleetError::Full("maximum bytes exceeded".to_owned()));
        }
        let seq = self.store(subject, Some(labels.clone()), body);
        self.ids.insert(id, (now, seq));
        Ok(seq)
    }

    fn last(&self, stream: &str, subject: &str, fault: Option<Fault>) -> Option<Stored> {
        let skip = usize::from(fault == Some(Fault::Behind));
        match stream {
            CHANGES => {
                let kept = self.changes.iter().flatten().rev();
                let mut fitting = kept.filter(|kept| fits(subject, &kept.subject));
                fitting.nth(skip).map(|kept| kept.stored.clone())
            }
            VMS => {
                let all = self.vms.iter().flatten();
                let fitting = all.filter(|(it, _)| fits(subject, it)).map(|(_, stored)| stored);
                fitting.max_by_key(|stored| stored.seq).cloned()
            }
            _ => self.nodes.get(subject.strip_prefix("$KV.NODES.")?).cloned(),
        }
    }
}

fn fits(filter: &str, subject: &str) -> bool {
    match filter.strip_suffix('>') {
        Some(beginning) => subject.starts_with(beginning),
        None => subject == filter,
    }
}

impl Feed for Memory {
    fn largest(&self) -> usize {
        self.largest
    }

    fn last<'a>(&'a self, stream: &'a str, subject: &'a str) -> Answer<'a, Option<Stored>> {
        Box::pin(async move {
            self.run(|streams, fault| {
                // No server answers for a stream that does not exist.
                let is_there = match stream {
                    CHANGES => streams.changes.is_some(),
                    VMS => streams.vms.is_some(),
                    _ => stream == KV_NODES,
                };
                match is_there {
                    true => Ok(streams.last(stream, subject, fault)),
                    false => Err(FleetError::Away("no server answers".to_owned())),
                }
            })
        })
    }

    fn publish<'a>(
        &'a self,
        subject: &'a str,
        labels: &'a Labels,
        body: Bytes,
        expected: u64,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            if body.len() > self.largest {
                return Err(FleetError::TooLarge { bytes: body.len(), most: self.largest });
            }
            self.run(|streams, fault| streams.publish(subject, labels, body, expected, fault))
        })
    }

    fn beat<'a>(&'a self, cn: &'a str, body: Bytes, expected: u64) -> Answer<'a, u64> {
        Box::pin(async move {
            self.run(|streams, _| {
                let revision = streams.nodes.get(cn).map_or(0, |stored| stored.seq);
                if revision != expected {
                    return Err(FleetError::WrongLast(cn.to_owned()));
                }
                let next = streams.nodes.values().map(|stored| stored.seq).max().unwrap_or(0) + 1;
                streams.nodes.insert(cn.to_owned(), Stored { seq: next, labels: None, body });
                Ok(next)
            })
        })
    }

    fn subjects<'a>(&'a self, stream: &'a str, filter: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            self.run(|streams, _| {
                let missing = || FleetError::NoStream(stream.to_owned());
                let all: Vec<String> = match stream {
                    CHANGES => {
                        let kept = streams.changes.as_ref().ok_or_else(missing)?;
                        kept.iter().map(|kept| kept.subject.clone()).collect()
                    }
                    _ => streams.vms.as_ref().ok_or_else(missing)?.keys().cloned().collect(),
                };
                Ok(all.into_iter().filter(|subject| fits(filter, subject)).collect())
            })
        })
    }
}
