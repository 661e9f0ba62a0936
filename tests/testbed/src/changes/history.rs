// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The events and readings of a storm as digests of the whole state, and whether they agree. Pure.
//!
//! The state after event N has one digest for a listener that lived through N, one that began at N,
//! and a reader of `/vms` at N.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A state as one listener or reader has it: the digest of each VM's text, and of all.
#[derive(Clone, Debug, Default)]
pub struct State {
    vms: HashMap<String, u64>,
    all: u64,
}

impl State {
    /// The digest of the whole.
    pub fn digest(&self) -> u64 {
        self.all
    }

    /// Sets one VM's text, and returns whether the VM was there before.
    fn set(&mut self, zonename: &str, text: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        (zonename, text).hash(&mut hasher);
        let digest = hasher.finish();
        self.all ^= digest;
        let old = self.vms.insert(zonename.to_owned(), digest);
        self.all ^= old.unwrap_or_default();
        old.is_some()
    }

    /// Removes one VM, and returns whether it was there.
    fn remove(&mut self, zonename: &str) -> bool {
        let old = self.vms.remove(zonename);
        self.all ^= old.unwrap_or_default();
        old.is_some()
    }

    /// The state that an array of VMs shows.
    pub fn of_list(text: &str) -> Result<Self, String> {
        let vms: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|e| format!("no array: {e}"))?;
        let mut state = Self::default();
        for vm in vms {
            let named: Named = serde_json::from_str(vm.get()).map_err(|e| format!("no VM: {e}"))?;
            if state.set(&named.zonename, vm.get()) {
                return Err(format!("{} is listed twice", named.zonename));
            }
        }
        Ok(state)
    }
}

#[derive(Deserialize)]
struct Named {
    zonename: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: String,
    zonename: Option<String>,
    seq: Option<u64>,
    epoch: Option<String>,
    vms: Option<String>,
    #[serde(borrow)]
    vm: Option<&'a RawValue>,
    #[serde(borrow)]
    changes: Option<&'a RawValue>,
}

/// One listener, over all its connections.
#[derive(Clone, Debug, Default)]
pub struct Listener {
    /// What it believes.
    pub state: State,
    /// The last event it knows.
    pub seq: u64,
    /// The daemon's start.
    pub epoch: String,
    /// A connection has begun: its first line is due.
    begins: bool,
    /// It resumes: its first line must not be a snapshot.
    resumes: bool,
}

impl Listener {
    /// A new connection; `resumes`: it asked to go on after what it knows.
    pub fn connect(&mut self, resumes: bool) {
        (self.begins, self.resumes) = (true, resumes);
    }

    /// Takes a line; the digest it has now. An error is a broken promise (V1, V2, V4 and the rules
    /// of docs/contract/vminfod.md §2.1).
    pub fn take(&mut self, line: &[u8]) -> Result<u64, String> {
        let text = std::str::from_utf8(line).map_err(|_| "a line is no UTF-8".to_owned())?;
        if !text.is_ascii() {
            return Err("a line is not ASCII".to_owned());
        }
        let line: Line<'_> =
            serde_json::from_str(text).map_err(|e| format!("no event: {e}: {text:.80}"))?;
        let seq = line.seq.ok_or_else(|| format!("{} without seq", line.kind))?;
        let first = std::mem::take(&mut self.begins);
        match (first, line.kind.as_str()) {
            (true, "ready") if !self.resumes => {
                self.state = State::of_list(&line.vms.ok_or("ready without vms")?)?;
                self.seq = seq;
                self.epoch = line.epoch.ok_or("ready without epoch")?;
            }
            (true, "resume") if self.resumes => {
                if seq != self.seq || line.epoch.as_deref() != Some(self.epoch.as_str()) {
                    return Err(format!("resumed at {seq} instead of {}", self.seq));
                }
            }
            (false, "create" | "modify" | "delete") => {
                if seq != self.seq + 1 {
                    return Err(format!("event {seq} follows {}", self.seq));
                }
                self.seq = seq;
                self.apply(&line)?;
            }
            (first, kind) => return Err(format!("a {kind} line, first {first}")),
        }
        Ok(self.state.digest())
    }

    /// Takes where a line is, and nothing that it says.
    pub fn pass(&mut self, line: &[u8]) {
        let line: Value = serde_json::from_slice(line).unwrap_or_default();
        self.seq = line["seq"].as_u64().unwrap_or(self.seq);
        if let Some(epoch) = line["epoch"].as_str() {
            epoch.clone_into(&mut self.epoch);
        }
    }

    fn apply(&mut self, line: &Line<'_>) -> Result<(), String> {
        let name = line.zonename.as_deref().ok_or("an event without zonename")?;
        let Some(vm) = line.vm else {
            return match (line.kind.as_str(), self.state.remove(name)) {
                ("delete", true) => Ok(()),
                (kind, known) => Err(format!("{kind} of {name} without VM, known: {known}")),
            };
        };
        let known = self.state.set(name, vm.get());
        let changed = line.changes.is_some_and(|changes| changes.get() != "[]");
        match (line.kind.as_str(), known, changed) {
            ("create", false, false) | ("modify", true, true) => Ok(()),
            (kind, ..) => Err(format!("{kind} of {name}, known: {known}, changes: {changed}")),
        }
    }
}

/// The digest after each event, by whoever saw it first, and what readers saw in between.
#[derive(Debug, Default)]
pub struct History {
    digests: BTreeMap<u64, u64>,
    /// A reading of `/vms`: not before the first event, not after the second.
    reads: Vec<(u64, u64, u64)>,
}

impl History {
    /// Somebody's state after an event. An error when somebody else's was another.
    pub fn told(&mut self, seq: u64, digest: u64) -> Result<(), String> {
        match *self.digests.entry(seq).or_insert(digest) {
            known if known == digest => Ok(()),
            _ => Err(format!("two listeners differ after event {seq}")),
        }
    }

    /// The newest event anybody was told.
    pub fn newest(&self) -> u64 {
        self.digests.last_key_value().map_or(0, |(seq, _)| *seq)
    }

    /// A reading of `/vms` that began when `low` had been told and ended before `high` was over.
    pub fn read(&mut self, low: u64, high: u64, digest: u64) {
        self.reads.push((low, high, digest));
    }

    /// How many events were told and how often `/vms` was read.
    pub fn sizes(&self) -> (usize, usize) {
        (self.digests.len(), self.reads.len())
    }

    /// Every reading was of a state that the listeners had at that time.
    pub fn check(&self) -> Result<(), String> {
        for (low, high, digest) in &self.reads {
            let mut states = self.digests.range(low..=high);
            if !states.any(|(_, told)| told == digest) {
                return Err(format!(
                    "/vms between the events {low} and {high} is no state of them"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &[u8] =
        br#"{"type":"ready","vms":"[{\"zonename\":\"a\",\"x\":1}]","seq":4,"epoch":"e"}"#;

    fn modify(seq: u64, x: u64) -> Vec<u8> {
        format!(r#"{{"type":"modify","zonename":"a","vm":{{"zonename":"a","x":{x}}},"changes":[1],"seq":{seq}}}"#)
            .into_bytes()
    }

    #[test]
    fn a_listener_has_the_state_that_a_reader_sees() {
        let mut listener = Listener::default();
        listener.connect(false);
        listener.take(READY).unwrap();
        let digest = listener.take(&modify(5, 2)).unwrap();
        let read = State::of_list(r#"[{"zonename":"a","x":2}]"#).unwrap();
        assert_eq!(digest, read.digest());
        let mut history = History::default();
        history.told(5, digest).unwrap();
        assert!(history.told(5, digest ^ 1).is_err());
        history.read(4, 5, digest);
        history.check().unwrap();
        history.read(4, 5, 0);
        assert!(history.check().is_err());
    }

    #[test]
    fn gaps_repeats_and_wrong_kinds_are_noticed() {
        let begun = || {
            let mut listener = Listener::default();
            listener.connect(false);
            listener.take(READY).unwrap();
            listener
        };
        assert!(begun().take(&modify(6, 2)).is_err(), "a gap");
        assert!(begun().take(&modify(4, 2)).is_err(), "a repeat");
        assert!(begun().take(READY).is_err(), "a second snapshot");
        let create = br#"{"type":"create","zonename":"a","vm":{"zonename":"a"},"seq":5}"#;
        assert!(begun().take(create).is_err(), "a create of what is known");
        let delete = br#"{"type":"delete","zonename":"b","seq":5}"#;
        assert!(begun().take(delete).is_err(), "a delete of what is unknown");
        let mut resumed = begun();
        resumed.connect(true);
        assert!(resumed.clone().take(READY).is_err());
        assert!(resumed.clone().take(br#"{"type":"resume","epoch":"e","seq":5}"#).is_err());
        resumed.take(br#"{"type":"resume","epoch":"e","seq":4}"#).unwrap();
        resumed.take(&modify(5, 3)).unwrap();
    }
}
