// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The bounded queue of signals between the sources and the reconciler. Equal signals fold; the states
//! of a zone keep their order.
//!
//! At its bound it drops all signals and asks for a refresh instead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::{IndexMap, IndexSet};
use tokio::sync::Notify;

use vm_model::parse::sysevent::ZoneEvent;
use vm_model::parse::zfs_event::DatasetEvent;
use vm_model::stale::ZoneFile;

use super::signal::Signal;

/// Most names held at once; a node has a few thousand datasets at most.
const CAP: usize = 50_000;
/// Most events kept per zone between two readings; older ones fold away.
const EVENTS_PER_ZONE: usize = 64;

/// The signals since the last [`Inbox::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Zone events, in order, by zone name.
    pub zones: IndexMap<String, Vec<ZoneEvent>>,
    /// Files of zones.
    pub files: IndexSet<(Arc<str>, ZoneFile)>,
    /// The last event of each dataset.
    pub datasets: IndexMap<String, DatasetEvent>,
    /// The zone index.
    pub index: bool,
    pub sysinfo: bool,
    /// Zones whose files were not watched before.
    pub unwatched: IndexSet<String>,
    /// No file was watched before.
    pub all_unwatched: bool,
    /// Signals were lost: anything may have changed.
    pub everything: bool,
}

impl Pending {
    /// Returns true if there is no signal.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Logs each signal as a cause.
    fn log(&self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        for (vm, events) in &self.zones {
            let states: Vec<&str> = events.iter().map(|event| event.newstate.as_str()).collect();
            let states = states.join(", ");
            tracing::debug!(vm, states, "cause: zone events");
        }
        for (vm, file) in &self.files {
            tracing::debug!(vm = &**vm, file = file.name(), "cause: file changed");
        }
        for (dataset, event) in &self.datasets {
            tracing::debug!(dataset, action = event.action.name(), "cause: zfs event");
        }
        for (is_it, what) in [
            (self.index, "zone index changed"),
            (self.sysinfo, "sysinfo changed"),
            (self.all_unwatched, "files are watched from now on"),
            (self.everything, "anything may have changed"),
        ] {
            if is_it {
                tracing::debug!("cause: {what}");
            }
        }
    }

    fn add(&mut self, signal: Signal) {
        match signal {
            Signal::Zone(event) => {
                let events = self.zones.entry(event.name.clone()).or_default();
                // A repeat is dropped; a full list keeps its beginning and its newest event.
                if events.last() != Some(&event) {
                    if events.len() >= EVENTS_PER_ZONE {
                        events.pop();
                    }
                    events.push(event);
                }
            }
            Signal::File(zone, file) => {
                self.files.insert((zone, file));
            }
            Signal::Dataset(event) => match self.datasets.get_mut(&event.name) {
                Some(known) => {
                    known.action = event.action;
                    known.rolled_back |= event.rolled_back;
                    known.renamed |= event.renamed;
                }
                None => {
                    self.datasets.insert(event.name.clone(), event);
                }
            },
            Signal::Index => self.index = true,
            Signal::Sysinfo => self.sysinfo = true,
            Signal::Unwatched(zone) => drop(self.unwatched.insert(zone)),
            Signal::AllUnwatched => self.all_unwatched = true,
            Signal::Everything => self.everything = true,
        }
        if self.zones.len() + self.files.len() + self.datasets.len() + self.unwatched.len() > CAP {
            *self = Self { everything: true, index: true, sysinfo: true, ..Self::default() };
        }
    }
}

/// The inbox of the loop.
#[derive(Debug, Default)]
pub struct Inbox {
    pending: Mutex<Pending>,
    news: Notify,
}

impl Inbox {
    /// Puts a signal in; never waits.
    pub fn put(&self, signal: Signal) {
        self.lock().add(signal);
        self.news.notify_one();
    }

    /// Takes all signals.
    pub fn take(&self) -> Pending {
        let pending = std::mem::take(&mut *self.lock());
        pending.log();
        pending
    }

    /// Waits until there may be a signal. Cancel-safe.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use vm_model::parse::zfs_event::Action;

    use super::*;

    fn zone(name: &str, newstate: &str) -> Signal {
        Signal::Zone(ZoneEvent { name: name.into(), newstate: newstate.into(), zoneid: Some(1) })
    }

    #[test]
    fn repeats_fold_and_keep_their_order() {
        let inbox = Inbox::default();
        for state in ["shutting_down", "shutting_down", "uninitialized", "shutting_down"] {
            inbox.put(zone("z", state));
        }
        let pending = inbox.take();
        let states: Vec<_> = pending.zones["z"].iter().map(|e| e.newstate.as_str()).collect();
        assert_eq!(states, ["shutting_down", "uninitialized", "shutting_down"]);
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn last_action_of_a_dataset_wins() {
        let event = |action, rolled_back| {
            Signal::Dataset(DatasetEvent {
                name: "p/d".into(),
                action,
                rolled_back,
                renamed: false,
            })
        };
        let inbox = Inbox::default();
        inbox.put(event(Action::Fetch, true));
        inbox.put(event(Action::Expire, false));
        let pending = inbox.take();
        assert_eq!(pending.datasets["p/d"].action, Action::Expire);
        assert!(pending.datasets["p/d"].rolled_back);
    }

    #[test]
    fn overflow_asks_for_a_refresh() {
        let inbox = Inbox::default();
        for n in 0..=CAP {
            inbox.put(Signal::File(n.to_string().into(), ZoneFile::Xml));
        }
        let pending = inbox.take();
        assert!(pending.everything && pending.files.is_empty());
        for n in 0..10_000 {
            inbox.put(zone("z", if n % 2 == 0 { "running" } else { "shutting_down" }));
        }
        assert_eq!(inbox.take().zones["z"].len(), EVENTS_PER_ZONE);
    }
}
