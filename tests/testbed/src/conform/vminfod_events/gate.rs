// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the operations of one recorded step one moment for the daemon, however busy the machine
//! is: while the gate is closed no command is answered and no file's change is told, so nothing is
//! read that the step has only half done. It decides nothing about what is read afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use vminfod::commands::Tool;
use vminfod::sources::inbox::{Inbox, Pending};
use vminfod::sources::watch::{Order, Watch, WatchError};
use vminfod::sources::{Signal, ZoneFile};

/// What the names of markers begin with; no recorded zone is called so.
const MARKER: &str = "conform-marker-";

/// The gate; cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    open: watch::Sender<bool>,
    /// The newest marker that came through the file watcher.
    heard: watch::Sender<u64>,
    written: Arc<Mutex<u64>>,
    /// Zones for which zoneadm waits.
    waiting: Arc<Mutex<Vec<String>>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            open: watch::Sender::new(true),
            heard: watch::Sender::new(0),
            written: Arc::default(),
            waiting: Arc::default(),
        }
    }
}

impl Gate {
    /// From now on nothing passes.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Lets everything pass again.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// The zones whose reading stands before the gate: it has read nothing yet.
    pub(crate) fn waiting(&self) -> BTreeSet<String> {
        lock(&self.waiting).iter().cloned().collect()
    }

    /// Passes when it is open. The kernel's numbers come last in a reading, so they always pass.
    pub(crate) async fn pass(&self, tool: Tool, args: &[String]) {
        if matches!(tool, Tool::Kstat | Tool::Sysevent) {
            return;
        }
        let zone = match (tool, args) {
            (Tool::Zoneadm, [flag, zone, ..]) if flag == "-z" => Some(zone.clone()),
            _ => None,
        };
        let mut opened = self.open.subscribe();
        if *opened.borrow_and_update() {
            return;
        }
        lock(&self.waiting).extend(zone.clone());
        let _closed_with_the_daemon = opened.wait_for(|open| *open).await;
        let mut waiting = lock(&self.waiting);
        if let Some(at) = waiting.iter().position(|one| Some(one) == zone.as_ref()) {
            waiting.swap_remove(at);
        }
    }

    /// Waits until the watcher has told of everything that was done to files so far: the kernel
    /// tells in order, so a marker that comes through has nothing before it.
    pub(crate) async fn hear_all(&self, configs: &Path) -> anyhow::Result<()> {
        if !cfg!(target_os = "linux") {
            return Ok(());
        }
        let number = {
            let mut written = lock(&self.written);
            *written += 1;
            *written
        };
        let mut heard = self.heard.subscribe();
        let marker = configs.join(format!("{MARKER}{number}.xml"));
        std::fs::write(&marker, "")?;
        heard.wait_for(|newest| *newest >= number).await?;
        Ok(std::fs::remove_file(marker)?)
    }

    /// What the watcher told, without the markers.
    fn sort(&self, pending: Pending) -> Vec<Signal> {
        let mut signals: Vec<Signal> = Vec::new();
        for (zone, file) in pending.files {
            match zone.strip_prefix(MARKER).map(str::parse::<u64>) {
                Some(Ok(number)) if file == ZoneFile::Xml => {
                    self.heard.send_if_modified(|newest| {
                        let news = number > *newest;
                        *newest = number.max(*newest);
                        news
                    });
                }
                _ => signals.push(Signal::File(zone, file)),
            }
        }
        let whole = [
            (pending.index, Signal::Index),
            (pending.sysinfo, Signal::Sysinfo),
            (pending.everything, Signal::Everything),
        ];
        signals.extend(whole.into_iter().filter_map(|(is_it, signal)| is_it.then_some(signal)));
        signals
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file watcher behind the gate.
pub(crate) struct Gated {
    /// Where it stands.
    pub(crate) gate: Gate,
    /// What watches.
    pub(crate) inner: Box<dyn Watch>,
}

impl Watch for Gated {
    fn follow(&self, order: Order) -> BoxFuture<'static, Result<(), WatchError>> {
        let (gate, told) = (self.gate.clone(), Arc::new(Inbox::default()));
        let inner = self.inner.follow(Order { inbox: Arc::clone(&told), ..order.clone() });
        Box::pin(async move {
            // Neither arm is ever begun anew: what they hold is not lost.
            tokio::select! {
                ended = inner => ended,
                () = hand_on(&gate, &told, &order.inbox) => Ok(()),
            }
        })
    }
}

async fn hand_on(gate: &Gate, told: &Inbox, to: &Inbox) {
    let mut opened = gate.open.subscribe();
    let mut held = Vec::new();
    loop {
        if *opened.borrow_and_update() {
            held.drain(..).for_each(|signal| to.put(signal));
        }
        // Both arms are cancel-safe: news stay news, a change stays one.
        tokio::select! {
            () = told.news() => held.extend(gate.sort(told.take())),
            changed = opened.changed() => if changed.is_err() { return },
        }
    }
}
