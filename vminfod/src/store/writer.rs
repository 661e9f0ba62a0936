// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The write side: commits one object at a time, and writes its event.
//!
//! A client that reads `/vms` and then follows `/events` must neither miss a change nor see one twice. So an object,
//! its number and its event are published together, and there is no other way to change an object.

use std::sync::Arc;

use bytes::Bytes;
use daemon::http::now_iso;
use daemon::journal::Entry;
use vm_model::diff::{Change, Differing};
use vm_model::js::to_ascii;
use vm_model::outline::Outline;

use super::note::Note;
use super::published::{Published, Snapshot};
use super::stored::{StoredVm, stored};

/// The most changes of one commit that are logged by name.
const LOGGED: usize = 20;

/// The effect of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outcome {
    /// The VM is new.
    #[error("created")]
    Created,
    /// This many change records.
    #[error("modified")]
    Modified(usize),
    /// The VM was removed.
    #[error("deleted")]
    Deleted,
    /// Nothing differs: no event.
    #[error("unchanged")]
    Unchanged,
}

/// The write side, owned by the reconciler.
#[derive(Debug)]
pub struct Store {
    published: Arc<Published>,
}

impl Store {
    /// Returns an empty store with an epoch of its own, and a ring of this size.
    pub fn new(ring_bytes: usize) -> Self {
        Self { published: Arc::new(Published::new(ring_bytes)) }
    }

    /// The read side.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// Stores the objects of the first load, without events: the port is not open yet.
    pub fn seed(&self, vms: impl IntoIterator<Item = (Arc<str>, Arc<StoredVm>)>) {
        let vms = vms.into_iter().collect();
        self.published.edit(|snapshot| *snapshot = Snapshot { seq: 0, vms });
    }

    /// Returns true if there is a VM of this zone name.
    pub fn shows(&self, name: &str) -> bool {
        self.published.snapshot().vms.contains_key(name)
    }

    /// Stores one object and removes those of `instead`, in one step, with an event for each that differs.
    /// `old` returns the object that it replaces.
    pub fn put(
        &self,
        name: &str,
        object: Outline,
        instead: &[Arc<str>],
        old: impl FnOnce() -> Option<Outline>,
    ) -> Outcome {
        let mut commit = self.begin();
        instead.iter().for_each(|other| commit.remove(other));
        let known = self.published.snapshot().vms.get(name).cloned();
        let vm = stored(&object);
        let (kind, outcome, note, changes) = match known {
            None => {
                let note = Note::of(None, Some(&object.fields), &[]);
                ("create", Outcome::Created, note, String::new())
            }
            Some(known) if vm.json() == known.json() => {
                commit.publish();
                return Outcome::Unchanged;
            }
            Some(_) => {
                let differing = Differing::of(old().unwrap_or_default(), object);
                let changes = differing.changes();
                if changes.is_empty() {
                    commit.publish();
                    return Outcome::Unchanged;
                }
                log_changes(name, &changes);
                let (old, new) = (&differing.old.fields, &differing.new.fields);
                let note = Note::of(Some(old), Some(new), &changes);
                let text = format!(",\"changes\":{}", to_ascii(&changes));
                ("modify", Outcome::Modified(changes.len()), note, text)
            }
        };
        let more = [b",\"vm\":", &*vm.json(), changes.as_bytes()];
        commit.event(kind, name, vm.uuid.as_deref(), &more, &note);
        commit.vms.push((name, Some(vm)));
        commit.publish();
        outcome
    }

    /// Removes one VM and emits an event.
    pub fn remove(&self, name: &str) -> Outcome {
        let mut commit = self.begin();
        commit.remove(name);
        if commit.publish() { Outcome::Deleted } else { Outcome::Unchanged }
    }

    fn begin(&self) -> Commit<'_> {
        let seq = self.published.snapshot().seq;
        Commit { published: &self.published, seq, vms: Vec::new(), entries: Vec::new() }
    }
}

/// Events that become visible in one step, with the VMs that they leave.
struct Commit<'a> {
    published: &'a Published,
    seq: u64,
    /// By zone name; `None`: it is removed.
    vms: Vec<(&'a str, Option<Arc<StoredVm>>)>,
    entries: Vec<Entry>,
}

impl<'a> Commit<'a> {
    /// Removes a VM, if there is one of this name.
    fn remove(&mut self, name: &'a str) {
        let Some(known) = self.published.snapshot().vms.get(name).cloned() else { return };
        let note = Note { was: Some(known.traits.clone()), paths: Vec::new() };
        self.event("delete", name, known.uuid.as_deref(), &[], &note);
        self.vms.push((name, None));
    }

    /// Adds an event; `more` is the JSON between its names and its number.
    fn event(&mut self, kind: &str, name: &str, uuid: Option<&str>, more: &[&[u8]], note: &Note) {
        self.seq += 1;
        let (date, zonename, uuid) = (now_iso(), to_ascii(name), to_ascii(uuid.unwrap_or(name)));
        let head = format!(
            "{{\"type\":\"{kind}\",\"date\":\"{date}\",\"zonename\":{zonename},\"uuid\":{uuid}"
        );
        let end = format!(",\"seq\":{},\"epoch\":\"{}\"}}\n", self.seq, self.published.epoch);
        let line = [&[head.as_bytes()], more, &[end.as_bytes()]].concat().concat();
        self.entries.push(Entry { line: Bytes::from(line), note: note.to_bytes() });
    }

    /// Makes the events visible; returns true if there is one.
    fn publish(self) -> bool {
        let Self { published, seq, vms, entries } = self;
        if entries.is_empty() {
            return false;
        }
        // The snapshot comes first: a client that has read an event finds its effect in `/vms`. A
        // listener that starts in between has a cursor ahead of the ring, and waits.
        published.edit(|snapshot| {
            snapshot.seq = seq;
            for (name, vm) in vms {
                match vm {
                    Some(vm) => drop(snapshot.vms.insert(name.into(), vm)),
                    None => drop(snapshot.vms.shift_remove(name)),
                }
            }
        });
        for entry in entries {
            published.journal.push(entry);
        }
        true
    }
}

/// Logs what changed, without the values: they may be secrets.
fn log_changes(vm: &str, changes: &[Change<'_>]) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let one = |change: &Change<'_>| format!("{} {}", change.pretty_path, change.action.name());
    let changes = changes.iter().take(LOGGED).map(one).collect::<Vec<_>>().join(", ");
    tracing::debug!(vm, changes, "differs");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use vm_model::VmObject;

    use super::*;
    use daemon::journal::{BYTES, Read};

    fn put(store: &Store, name: &str, object: VmObject) -> Outcome {
        let old = store.published().snapshot().vms.get(name).map(|vm| vm.object().into());
        store.put(name, object.into(), &[], || old)
    }

    fn vm(value: Value) -> VmObject {
        match value {
            Value::Object(map) => map,
            other => panic!("not an object: {other}"),
        }
    }

    fn lines(store: &Store) -> Vec<Value> {
        match store.published().journal.read(0, usize::MAX) {
            Read::Lines { lines, .. } => {
                lines.iter().map(|event| serde_json::from_slice(&event.line).unwrap()).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn commits_object_number_and_event_together() {
        let store = Store::new(BYTES);
        let first = stored(&vm(json!({"zonename": "z0", "uuid": "u0"})).into());
        store.seed([(Arc::from("z0"), first)]);
        assert_eq!(
            put(&store, "z1", vm(json!({"zonename": "z1", "uuid": "u1", "alias": "\u{e9}"}))),
            Outcome::Created
        );
        assert_eq!(
            put(&store, "z1", vm(json!({"zonename": "z1", "uuid": "u1", "alias": "b"}))),
            Outcome::Modified(1)
        );
        assert_eq!(
            put(&store, "z1", vm(json!({"zonename": "z1", "alias": "b", "uuid": "u1"}))),
            Outcome::Unchanged
        );
        assert_eq!(store.remove("z1"), Outcome::Deleted);
        assert_eq!(store.remove("z1"), Outcome::Unchanged);

        let published = store.published();
        assert_eq!(published.snapshot().seq, 3);
        assert_eq!(published.snapshot().vms.keys().map(|k| &**k).collect::<Vec<_>>(), ["z0"]);
        let events = lines(&store);
        assert_eq!(
            events.iter().map(|e| &e["type"]).collect::<Vec<_>>(),
            ["create", "modify", "delete"]
        );
        assert_eq!(
            events.iter().map(|e| e["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        let keys: Vec<_> = events[1].as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["type", "date", "zonename", "uuid", "vm", "changes", "seq", "epoch"]);
        assert_eq!(published.epoch.len(), 16);
    }

    #[test]
    fn each_event_is_one_ascii_line() {
        let store = Store::new(BYTES);
        put(&store, "z\n\u{1f600}", vm(json!({"alias": "caf\u{e9}\r\n\u{1f600}"})));
        let Read::Lines { lines, .. } = store.published().journal.read(0, usize::MAX) else {
            panic!("no line")
        };
        let line = &lines[0].line;
        assert!(line.iter().all(|b| *b < 0x80));
        assert_eq!(line.iter().filter(|b| **b == b'\n' || **b == b'\r').count(), 1);
        assert!(line.ends_with(b"\n"));
    }

    #[test] // F77
    fn another_object_in_its_place_is_one_step() {
        let store = Store::new(BYTES);
        put(&store, "a", vm(json!({"uuid": "u"})));
        let published = store.published();
        let before = published.snapshot();
        let b = || vm(json!({"uuid": "u"})).into();
        assert_eq!(store.put("b", b(), &["a".into(), "c".into()], || None), Outcome::Created);
        let (shown, events) = (published.snapshot(), lines(&store));
        assert_eq!((shown.seq, shown.vms.keys().map(|key| &**key).collect()), (3, vec!["b"]));
        assert_eq!((before.seq, before.vms.contains_key("a")), (1, true), "a reader's own stays");
        let told: Vec<_> = events.iter().map(|e| (e["type"].clone(), e["seq"].clone())).collect();
        assert_eq!(
            told,
            [(json!("create"), json!(1)), (json!("delete"), json!(2)), (json!("create"), json!(3))]
        );
        put(&store, "a", vm(json!({"uuid": "u"})));
        assert_eq!(store.put("b", b(), &["a".into()], || None), Outcome::Unchanged);
        assert_eq!((published.snapshot().seq, published.snapshot().vms.len()), (5, 1));
    }
}
