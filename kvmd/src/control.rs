// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The control directory: which names have sockets there, watched through everything that can
//! happen to a directory. One monitor for each name (K1, K9); what a file is called starts one,
//! and only a connection says whether anything lives there.
//!
//! Every look is complete: signals only make one come sooner, and the same look is taken at the
//! start and again and again (R1, K8). That the directory is missing is a state, not an error
//! (K10).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::Control;
use crate::marker::{self, is_name};
use crate::monitor::{Outlet, Seat, Shared, monitor};
use crate::needed::Need;

#[cfg(target_os = "linux")]
mod watch_linux;
#[cfg(not(target_os = "linux"))]
mod watch_other;

#[cfg(target_os = "linux")]
use watch_linux::follow;
#[cfg(not(target_os = "linux"))]
use watch_other::follow;

/// How many signals may wait; a source that finds no room waits.
const SIGNALS: usize = 1024;
/// A watcher that ended is started again after this.
const RESTART: Duration = Duration::from_secs(5);
/// Clearings of instances that are gone are kept this long.
const CLEARS_KEPT: Duration = Duration::from_secs(86_400);

/// Something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A name came, or its file is another one now.
    Came(String),
    /// A name went.
    Went(String),
    /// The admin path cleared an instance's marker.
    Cleared(String),
    /// Anything.
    Everything,
}

/// What a watcher follows.
#[derive(Clone, Debug)]
pub struct Places {
    /// The control directory; it may not exist.
    pub control: PathBuf,
    /// The clearings; this one exists.
    pub cleared: PathBuf,
}

struct Entry {
    poke: Arc<Notify>,
    /// It was signalled while its monitor lived: look again when that has ended.
    again: bool,
}

/// The directory's monitors.
pub struct Directory {
    shared: Arc<Shared>,
    control: Control,
    need: Need,
    entries: HashMap<String, Entry>,
    running: JoinSet<String>,
}

impl Directory {
    /// Nothing watched yet.
    pub fn new(shared: Arc<Shared>, control: Control, need: Need) -> Self {
        Self { shared, control, need, entries: HashMap::new(), running: JoinSet::new() }
    }

    /// Watches until the shutdown, or until the daemon is not needed any more (K2).
    pub async fn run(mut self) {
        if self.control.extension == "qmp" {
            tracing::warn!(
                "watching *.qmp: a monitor serves one client, so whoever else needs these sockets will hang; give each QEMU a second -qmp socket named *.kvmd"
            );
        }
        let (sender, mut signals) = mpsc::channel(SIGNALS);
        let shared = Arc::clone(&self.shared);
        let places =
            Places { control: self.control.dir.clone(), cleared: shared.clears.dir().to_owned() };
        let watcher = tokio::spawn(keep_following(places, sender));
        let mut rescan = interval(shared.limits.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // All arms are cancel-safe: signals stay in the channel, monitors run on.
            tokio::select! {
                Some(signal) = signals.recv() => self.signal(signal),
                _ = rescan.tick() => {
                    if let Some(reason) = self.need.missing() {
                        tracing::info!(reason, "not needed any more: stopping");
                        shared.shutdown.trigger();
                        break;
                    }
                    self.look();
                    self.sweep();
                }
                Some(ended) = self.running.join_next() => self.ended(ended),
                () = shared.shutdown.wait() => break,
            }
        }
        watcher.abort();
        while self.running.join_next().await.is_some() {}
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Came(file) => {
                if let Some(name) = self.name_of(Path::new(&file)) {
                    self.shared.ledger.reachable(&name, true);
                    self.came(name);
                }
            }
            Signal::Went(file) => {
                if let Some(name) = self.name_of(Path::new(&file)) {
                    self.shared.ledger.reachable(&name, false);
                }
            }
            Signal::Cleared(name) => self.shared.clears.note(&name),
            Signal::Everything => self.look(),
        }
    }

    /// Looks at all there is and starts what is missing; what is monitored is left alone.
    fn look(&mut self) {
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
        let work = tokio::spawn(monitor(Arc::clone(&self.shared), seat, poke));
        self.running.spawn(async move {
            if work.await.is_err_and(|error| error.is_panic()) {
                tracing::error!(instance = name, "monitor panicked");
            }
            name
        });
    }

    fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) {
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

    /// Drops what belongs to nobody any more (R10).
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

/// Follows for ever; while it cannot, the rescans find everything, later.
async fn keep_following(places: Places, sender: mpsc::Sender<Signal>) {
    loop {
        if let Err(error) = follow(&places, &sender).await {
            tracing::warn!(%error, "the directory cannot be followed: rescans go on");
        }
        if sender.is_closed() {
            return;
        }
        tokio::time::sleep(RESTART).await;
    }
}
