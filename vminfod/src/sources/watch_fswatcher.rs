// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! File changes by the platform's `fswatcher` helper (event ports): the watcher of illumos. It is a
//! supervised child that is spoken to by lines, so this compiles and is tested everywhere.
//!
//! ```text
//!  wanted ─► asked ──SUCCESS──► watched ──event──► signal ──final──► asked
//!              └────FAIL──────► missing ──0.2 s × 10, then 10 s─────► asked
//! ```
//!
//! Watches files, and the directories they come to be in. A missing file is asked for again, at
//! once when its directory changes. Reads and writes never wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use sdc_clients::vminfod::Lines;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::watch::{CONFIG_FILES, Order, Watch, WatchError, Zones};
use super::{Signal, ZoneFile};
use crate::commands::converse;
use crate::root::Root;

/// The helper says that it is ready within this.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// A missing file is asked for again this often …
const SOON: Duration = Duration::from_millis(200);
/// … this many times, …
const SOON_TIMES: u32 = 10;
/// … and then this often.
const LATER: Duration = Duration::from_secs(10);
/// Longest line: a path and little more.
const LINE_CAP: usize = 64 << 10;

/// The watcher.
#[derive(Clone, Debug)]
pub struct Fswatcher {
    /// Where the helper is.
    pub program: PathBuf,
}

impl Watch for Fswatcher {
    fn follow(&self, order: Order) -> BoxFuture<'static, Result<(), WatchError>> {
        Box::pin(follow(self.program.clone(), order))
    }
}

async fn follow(program: PathBuf, mut order: Order) -> Result<(), WatchError> {
    let (mut child, mut stdin) = converse(&program, &["-r", "-j"])?;
    let (mut lines, mut chunk) = (Lines::new(LINE_CAP), vec![0; 64 << 10]);
    let mut talk = Talk::new(order.root.clone());
    let ready_by = Instant::now() + READY_LIMIT;
    loop {
        let next = if talk.ready { talk.next_try() } else { ready_by };
        // All arms are cancel-safe: what is not written stays in the buffer, what is not read stays
        // in the pipe, a changed list stays changed.
        tokio::select! {
            read = child.stdout.read(&mut chunk) => {
                let count = read?;
                if count == 0 {
                    return Err(WatchError::Helper(format!("exited with status {}", child.wait().await)));
                }
                lines.push(chunk.get(..count).unwrap_or_default());
                while let Some(line) = lines.next_line().map_err(|e| WatchError::Helper(e.to_string()))? {
                    let first = !talk.ready;
                    for signal in talk.told(&line)? {
                        order.inbox.put(signal);
                    }
                    if first && talk.ready {
                        talk.want(&order.zones.borrow_and_update().clone());
                        (order.health)(true);
                    }
                }
            }
            written = stdin.write_buf(&mut talk.out), if !talk.out.is_empty() => {
                let _count = written?;
            }
            changed = order.zones.changed(), if talk.ready => {
                if changed.is_err() {
                    return Ok(());
                }
                let zones = order.zones.borrow_and_update().clone();
                talk.want(&zones).into_iter().for_each(|signal| order.inbox.put(signal));
            }
            () = sleep_until(next) => {
                if !talk.ready {
                    return Err(WatchError::Helper("was not ready in time".to_owned()));
                }
                talk.try_again(Instant::now());
            }
        }
    }
}

/// A line of the helper; keys that do not matter here are left out.
#[derive(Deserialize)]
struct Told {
    r#type: String,
    #[serde(default)]
    pathname: Option<String>,
    #[serde(default)]
    r#final: bool,
    #[serde(default)]
    key: u64,
    #[serde(default)]
    result: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// One path that is to be watched.
#[derive(Debug, Default)]
struct Watched {
    /// What its change means.
    signals: Vec<Signal>,
    /// Failed attempts in a row; a success after any is a file that came into being.
    failures: u32,
    /// When to ask again; `None`: it is watched, or was just asked for.
    again: Option<Instant>,
    /// The last request for it: only its answer counts.
    key: u64,
}

/// The conversation with the helper: what is to be said to it, and what its lines mean. No I/O.
pub struct Talk {
    root: Root,
    ready: bool,
    key: u64,
    /// Requests without an answer, by key.
    asked: HashMap<u64, String>,
    paths: BTreeMap<String, Watched>,
    /// What is to be written.
    out: BytesMut,
}

impl Talk {
    /// Nothing said yet, nothing wanted.
    pub fn new(root: Root) -> Self {
        Self {
            root,
            ready: false,
            key: 0,
            asked: HashMap::new(),
            paths: BTreeMap::new(),
            out: BytesMut::new(),
        }
    }

    /// Takes a new list of zones; the files of zones that are new or moved get a signal, since what
    /// happened to them before they were watched is unknown.
    pub fn want(&mut self, zones: &Zones) -> Vec<Signal> {
        let wanted = self.wanted(zones);
        let idle: Vec<String> =
            self.paths.keys().filter(|path| !wanted.contains_key(*path)).cloned().collect();
        for path in idle {
            let watched = self.paths.remove(&path);
            watched.and_then(|watched| self.asked.remove(&watched.key));
            self.say("UNWATCH", &path);
        }
        let mut news = Vec::new();
        for (path, signals) in wanted {
            if let Some(known) = self.paths.get_mut(&path) {
                known.signals = signals;
                continue;
            }
            news.extend(signals.iter().cloned());
            self.paths.insert(path.clone(), Watched { signals, ..Watched::default() });
            self.ask(&path);
        }
        news
    }

    fn wanted(&self, zones: &Zones) -> BTreeMap<String, Vec<Signal>> {
        let mut wanted: BTreeMap<String, Vec<Signal>> = BTreeMap::new();
        let mut want = |path: PathBuf, signal: Option<Signal>| {
            // The helper ends a path at a blank; the sweep looks at such files.
            let Some(path) = path.to_str().filter(|path| !path.contains([' ', '\t', '\n', '\r']))
            else {
                return;
            };
            wanted.entry(path.to_owned()).or_default().extend(signal);
        };
        want(self.root.sysinfo(), Some(Signal::Sysinfo));
        want(self.root.zone_index(), Some(Signal::Index));
        // A configuration that comes into being is in no list yet.
        want(self.root.path("/etc/zones"), Some(Signal::Index));
        for (zone, zonepath) in zones.iter() {
            let file = |file| Some(Signal::File(zone.to_string(), file));
            want(self.root.zone_xml(zone), file(ZoneFile::Xml));
            want(self.root.lastexited(zonepath), file(ZoneFile::LastExited));
            for name in CONFIG_FILES {
                want(self.root.config_file(zonepath, name), file(ZoneFile::Config));
            }
            want(self.root.path(zonepath), None);
            want(self.root.path(zonepath).join("config"), None);
        }
        wanted
    }

    /// Takes a line of the helper in, and gives what it tells of.
    ///
    /// # Errors
    /// When it is no line of the helper, or says that a watch was lost.
    pub fn told(&mut self, line: &[u8]) -> Result<Vec<Signal>, WatchError> {
        let told: Told =
            serde_json::from_slice(line).map_err(|error| WatchError::Helper(error.to_string()))?;
        match told.r#type.as_str() {
            "ready" => {
                self.ready = true;
                Ok(Vec::new())
            }
            "event" => {
                Ok(told.pathname.map(|path| self.changed(&path, told.r#final)).unwrap_or_default())
            }
            "response" => Ok(self.answered(told.key, told.result.as_deref() == Some("SUCCESS"))),
            // A watch that cannot be told from others is lost: only a fresh start is sure.
            "error" => Err(WatchError::Helper(told.message.unwrap_or_default())),
            _ => Ok(Vec::new()),
        }
    }

    fn changed(&mut self, path: &str, gone: bool) -> Vec<Signal> {
        let Some(watched) = self.paths.get_mut(path) else { return Vec::new() };
        let signals = watched.signals.clone();
        if gone {
            // Whatever is there now is another file: its appearance is news too.
            watched.failures = watched.failures.max(1);
            self.ask(path);
        }
        // What came into being in a directory may be what is waited for.
        let inside = format!("{path}/");
        let missing: Vec<String> = self
            .paths
            .iter()
            .filter(|(below, watched)| watched.again.is_some() && below.starts_with(&inside))
            .map(|(below, _)| below.clone())
            .collect();
        missing.iter().for_each(|below| self.ask(below));
        signals
    }

    fn answered(&mut self, key: u64, success: bool) -> Vec<Signal> {
        let Some(path) = self.asked.remove(&key) else { return Vec::new() };
        let Some(watched) = self.paths.get_mut(&path) else { return Vec::new() };
        if success {
            let came = std::mem::take(&mut watched.failures) > 0;
            return if came { watched.signals.clone() } else { Vec::new() };
        }
        watched.failures = watched.failures.saturating_add(1);
        let pause = if watched.failures <= SOON_TIMES { SOON } else { LATER };
        watched.again = Some(Instant::now() + pause);
        Vec::new()
    }

    fn next_try(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3600);
        self.paths.values().filter_map(|watched| watched.again).min().unwrap_or(never)
    }

    fn try_again(&mut self, now: Instant) {
        let due =
            self.paths.iter().filter(|(_, watched)| watched.again.is_some_and(|at| at <= now));
        let due: Vec<String> = due.map(|(path, _)| path.clone()).collect();
        due.iter().for_each(|path| self.ask(path));
    }

    fn ask(&mut self, path: &str) {
        let key = self.say("WATCH", path);
        self.asked.insert(key, path.to_owned());
        if let Some(watched) = self.paths.get_mut(path) {
            watched.again = None;
            self.asked.remove(&std::mem::replace(&mut watched.key, key));
        }
    }

    /// How many requests have no answer yet: never more than paths are wanted.
    pub fn unanswered(&self) -> usize {
        self.asked.len()
    }

    fn say(&mut self, verb: &str, path: &str) -> u64 {
        self.key += 1;
        self.out.extend_from_slice(format!("{} {verb} {path}\n", self.key).as_bytes());
        self.key
    }
}

#[cfg(test)]
mod tests;
