// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The control directory: one monitor for each name that has a socket there (K1, K9). A file's name
//! starts a monitor; only a connection shows whether a QEMU serves it.
//!
//! The directory is looked at every 50 ms by its stamp, and completely at every rescan (R1, K8). A
//! missing directory is a state, not an error (K10).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::tasks::caught;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use self::names::{Changes, Names};
use crate::config::Control;
use crate::marker::{self, is_name};
use crate::monitor::{Outlet, Seat, Shared, monitor};
use crate::needed::Need;

mod names;

/// How often the directories are looked at. A new socket is found this late at most; an end is not
/// found here but by its connection.
const LOOK: Duration = Duration::from_millis(50);
/// Clearings of instances that are gone are kept this long.
const CLEARS_KEPT: Duration = Duration::from_secs(86_400);

struct Entry {
    poke: Arc<Notify>,
    /// Its file changed while its monitor lived: start another one when that has ended.
    again: bool,
}

/// The directory's monitors.
pub struct Directory {
    shared: Arc<Shared>,
    control: Control,
    need: Need,
    names: Names,
    cleared: Names,
    entries: HashMap<String, Entry>,
    running: JoinSet<String>,
}

impl Directory {
    /// Makes a directory without monitors.
    pub fn new(shared: Arc<Shared>, control: Control, need: Need) -> Self {
        let names = Names::new(control.dir.clone());
        let cleared = Names::new(shared.clears.dir().to_owned());
        let (entries, running) = (HashMap::new(), JoinSet::new());
        Self { shared, control, need, names, cleared, entries, running }
    }

    /// Watches until the shutdown, or until the daemon is not needed any more (K2).
    pub async fn run(mut self) {
        if self.control.extension == "qmp" {
            tracing::warn!(
                "watching *.qmp: a monitor serves one client, so other programs that need these \
                 sockets will hang; give each QEMU a second -qmp socket named *.kvmd"
            );
        }
        let shared = Arc::clone(&self.shared);
        let (mut look, mut rescan) = (interval(LOOK), interval(shared.limits.rescan));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // All arms are cancel-safe: the directory keeps its state, monitors run on.
            tokio::select! {
                _ = look.tick() => self.scan(),
                _ = rescan.tick() => {
                    if let Some(reason) = self.need.missing() {
                        tracing::info!(reason, "not needed any more: stopping");
                        shared.shutdown.trigger();
                        break;
                    }
                    self.rescan();
                    self.sweep();
                }
                Some(ended) = self.running.join_next() => self.ended(ended),
                () = shared.shutdown.wait() => break,
            }
        }
        while self.running.join_next().await.is_some() {}
    }

    fn scan(&mut self) {
        for name in self.cleared.scan().came {
            self.shared.clears.note(&name);
        }
        let Changes { came, went } = self.names.scan();
        for name in went.iter().filter_map(|file| self.name_of(Path::new(file))) {
            self.shared.ledger.reachable(&name, false);
        }
        for file in came {
            if let Some(name) = self.name_of(Path::new(&file)) {
                self.shared.ledger.reachable(&name, true);
                self.came(name);
            }
        }
    }

    /// Starts monitors for all sockets that have none: a dead socket may be served by now.
    fn rescan(&mut self) {
        self.scan();
        self.shared.clears.note_all();
        for entry in std::fs::read_dir(&self.control.dir).into_iter().flatten().flatten() {
            if let Some(name) = self.name_of(&entry.path())
                && !self.entries.contains_key(&name)
            {
                self.came(name);
            }
        }
    }

    fn came(&mut self, name: String) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.again = true;
            entry.poke.notify_one();
            return;
        }
        let poke = Arc::new(Notify::new());
        self.entries.insert(name.clone(), Entry { poke: Arc::clone(&poke), again: false });
        let seat = Seat {
            socket: self.control.dir.join(format!("{name}.{}", self.control.extension)),
            name: name.clone(),
            outlet: Outlet::Marker,
        };
        let work = monitor(Arc::clone(&self.shared), seat, poke);
        self.running.spawn(async move {
            caught("monitor", work).await;
            name
        });
    }

    fn ended(&mut self, ended: Result<String, JoinError>) {
        let Ok(name) = ended else { return };
        if self.entries.remove(&name).is_some_and(|entry| entry.again) {
            self.came(name);
        }
    }

    fn name_of(&self, file: &Path) -> Option<String> {
        if file.extension()? != self.control.extension.as_str() {
            return None;
        }
        let name = file.file_stem()?.to_str()?;
        is_name(name).then(|| name.to_owned())
    }

    /// Removes files of instances that are gone (R10).
    fn sweep(&self) {
        let live = |name: &str| self.entries.contains_key(name);
        self.shared.memory.sweep(live);
        self.shared.clears.sweep(CLEARS_KEPT, live);
        let Some(age) = self.control.marker_age else { return };
        for entry in std::fs::read_dir(&self.control.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_marker = path.extension().is_some_and(|ext| ext == marker::MARKER);
            let socket = path.with_extension(&self.control.extension);
            let modified = entry.metadata().and_then(|stat| stat.modified());
            if is_marker && modified.is_ok_and(|at| is_older(at, age)) && !socket.exists() {
                tracing::info!(marker = %path.display(), "old marker removed");
                let _next_time = marker::remove(&path);
            }
        }
    }
}

fn is_older(at: SystemTime, age: Duration) -> bool {
    at.elapsed().is_ok_and(|elapsed| elapsed > age)
}
