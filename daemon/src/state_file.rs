// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state file of a daemon: what must outlive the process. It is versioned, belongs to one node and
//! is replaced as a whole. If it is damaged, of another version or of another node, its reader must
//! assume the worst.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sdc_clients::Jitter;
use sdc_clients::retry::Backoff;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::config::Window;
use crate::disk::{self, stamp};
use crate::timing::{HOUR, policy};

/// Bytes of the file.
const LONGEST: usize = 32 << 20;
/// The waits after a write that failed.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(4) };

/// What is kept in a state file; its JSON also has the fields `version` and `cn_uuid`.
pub trait State: Serialize + DeserializeOwned + Clone + Send + 'static {
    /// The version of the layout.
    const VERSION: u32;
    /// What is worse while the file cannot be written, for the log.
    const UNWRITTEN: &str;

    /// Returns true if there is no need to write `other` after this.
    fn is_same(&self, other: &Self) -> bool;

    /// Returns when an earlier file was found damaged, where that is kept.
    fn lost(&self) -> Option<WallTime> {
        None
    }
}

/// A time of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(#[serde(with = "stamp")] pub Timestamp);

impl WallTime {
    /// Returns what is left of `span` since this time. If the clock went back, all of it.
    pub fn rest(self, span: Duration, now: Timestamp) -> Duration {
        let passed = Duration::try_from(now.duration_since(self.0)).unwrap_or_default();
        span.saturating_sub(passed)
    }

    /// Returns the time `ago`.
    pub fn ago(now: Timestamp, ago: Duration) -> Self {
        let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
        Self(now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Compares two times that were computed back from the monotonic clock: less than a second, by which
    /// the wall clock drifts, is no difference.
    pub fn is_close(self, other: Self) -> bool {
        self.0.duration_since(other.0).abs() < SignedDuration::from_secs(1)
    }

    /// Compares the values as [`WallTime::are_close`].
    pub fn are_all_close<K: Ord>(
        one: &BTreeMap<K, Option<Self>>,
        two: &BTreeMap<K, Option<Self>>,
    ) -> bool {
        one.keys().eq(two.keys())
            && one.values().zip(two.values()).all(|(one, two)| Self::are_close(*one, *two))
    }

    /// Compares as [`WallTime::is_close`].
    pub fn are_close(one: Option<Self>, two: Option<Self>) -> bool {
        match (one, two) {
            (Some(one), Some(two)) => one.is_close(two),
            (one, two) => one.is_none() && two.is_none(),
        }
    }
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The file system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a state file.
    #[error("{} is not a state file: {source}", path.display())]
    Syntax {
        path: PathBuf,
        /// Line and column.
        source: serde_json::Error,
    },
    /// Another layout.
    #[error("{} has version {found}, not {wanted}", path.display())]
    Version { path: PathBuf, found: u64, wanted: u32 },
    /// Another node's.
    #[error("{} is the file of node {found}", path.display())]
    Node { path: PathBuf, found: String },
}

/// The content of the file.
#[derive(Serialize)]
struct Written<K> {
    version: u32,
    cn_uuid: Arc<str>,
    #[serde(flatten)]
    kept: K,
}

/// The file and its condition. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    cn_uuid: Arc<str>,
    condition: Mutex<Condition>,
    save: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Condition {
    /// When an earlier file was found damaged.
    lost: Option<WallTime>,
    /// That damage, while something depends on it.
    damage: Option<String>,
    /// Why the file cannot be written.
    fault: Option<String>,
}

impl StateFile {
    /// The file of this node in this state directory; `save` wakes the task that saves it.
    pub fn new(state_dir: &Path, cn_uuid: &str, save: Arc<Notify>) -> Self {
        let (path, condition) = (state_dir.join("memory.json"), Mutex::default());
        Self { path, cn_uuid: cn_uuid.into(), condition, save }
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file; none before the first run.
    pub async fn read<K: State>(&self) -> Result<Option<K>, Damage> {
        let (path, node) = (self.path.clone(), Arc::clone(&self.cn_uuid));
        let failed = || {
            let (path, source) = (self.path.clone(), io::Error::other("the read was aborted"));
            Err(Damage::Io { path, source })
        };
        disk::blocking(move || read(path, &node)).await.unwrap_or_else(failed)
    }

    /// Replaces the file.
    pub async fn write<K: State>(&self, kept: K) -> Result<(), Unwritten> {
        let (path, cn_uuid) = (self.path.clone(), Arc::clone(&self.cn_uuid));
        let written = Written { version: K::VERSION, cn_uuid, kept };
        match disk::blocking(move || disk::write_atomically(&path, &written, LONGEST)).await {
            Some(written) => Ok(written?),
            None => Err(Unwritten(io::Error::other("the write was aborted"))),
        }
    }

    /// Writes `kept` if it differs from `saved`, and stores whether the file can be written. Returns false
    /// if it could not.
    pub async fn save<K: State>(&self, kept: K, saved: &mut Option<K>) -> bool {
        if saved.as_ref().is_some_and(|saved| saved.is_same(&kept)) {
            return true;
        }
        let fault = self.write(kept.clone()).await.err().map(|err| err.to_string());
        if self.set_fault(fault.clone())
            && let Some(reason) = &fault
        {
            tracing::error!(reason, "{}", K::UNWRITTEN);
        }
        if fault.is_none() {
            *saved = Some(kept);
        }
        fault.is_none()
    }

    /// Writes what `collect` returns whenever that changes, for ever; nothing while it returns none.
    pub async fn keep_saving<K: State>(&self, jitter: Jitter, collect: impl Fn() -> Option<K>) {
        if self.is_damaged() {
            self.keep_damaged().await;
        }
        let mut saved = None;
        let mut retry = Backoff::new(&policy(RETRY, None), jitter);
        loop {
            let is_saved = match collect() {
                Some(kept) => self.save(kept, &mut saved).await,
                None => true,
            };
            if is_saved {
                retry.reset();
                self.changed().await;
            } else {
                tokio::time::sleep(retry.next_delay().unwrap_or(RETRY.max)).await;
            }
        }
    }

    /// Copies a damaged file, so that it can be examined; the next write replaces it.
    pub async fn keep_damaged(&self) {
        let path = self.path.clone();
        // One that could not be read, such as a FIFO, is not copied.
        let copy = move || {
            let bytes = disk::read(&path, LONGEST)?;
            let copy = path.with_extension("damaged");
            let mut options = std::fs::OpenOptions::new();
            // An old copy may be readable by every user.
            let _absent = std::fs::remove_file(&copy);
            options.create_new(true).write(true).mode(0o600).open(copy)?.write_all(&bytes)
        };
        disk::blocking(copy).await;
    }

    /// Waits until something that belongs in the file has changed. Cancel-safe: a change that
    /// no task waited for is kept.
    pub async fn changed(&self) {
        self.save.notified().await;
    }

    /// Returns what the last run left; none before the first run. If the file cannot be used nothing is left of it, it
    /// was lost now, and `waits` says in the log what has to wait.
    pub async fn restore<K: State + Default>(&self, waits: &str) -> Option<K> {
        let read = self.read::<K>().await;
        let mut condition = self.condition();
        match read {
            Ok(kept) => {
                condition.lost = kept.as_ref().and_then(K::lost);
                kept
            }
            Err(damage) => {
                tracing::error!(reason = %damage, "the state file cannot be used: {waits}");
                condition.lost = Some(WallTime(crate::wall::now()));
                condition.damage = Some(format!("lost: {damage}"));
                Some(K::default())
            }
        }
    }

    /// Returns true while a damaged file of the last run is reported.
    pub fn is_damaged(&self) -> bool {
        self.condition().damage.is_some()
    }

    /// Returns when an earlier file was found damaged.
    pub fn lost(&self) -> Option<WallTime> {
        self.condition().lost
    }

    /// Returns true if an earlier file was found damaged within this time.
    pub fn lost_within(&self, span: Duration) -> bool {
        self.lost().is_some_and(|lost| !lost.rest(span, crate::wall::now()).is_zero())
    }

    /// Stops to report a damaged file after `span`, or an hour, when nothing depends on it.
    pub fn forget_damage(&self, span: Duration) {
        if !self.lost_within(HOUR.max(span)) {
            self.condition().damage = None;
        }
    }

    /// Stores why the file cannot be written, or none. Returns true if that is new.
    pub fn set_fault(&self, fault: Option<String>) -> bool {
        let mut condition = self.condition();
        let new = condition.fault != fault;
        condition.fault = fault;
        new
    }

    /// Returns why the file cannot be written.
    pub fn fault(&self) -> Option<String> {
        self.condition().fault.clone()
    }

    /// Returns what is wrong with the file, for people.
    pub fn sentence(&self) -> Option<String> {
        let condition = self.condition();
        condition.fault.clone().or_else(|| condition.damage.clone())
    }
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the state file memory.json: {0}")]
pub struct Unwritten(#[from] io::Error);

fn read<K: State>(path: PathBuf, cn_uuid: &str) -> Result<Option<K>, Damage> {
    let bytes = match disk::read(&path, LONGEST) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Damage::Io { path, source }),
    };
    let syntax = |source| Damage::Syntax { path: path.clone(), source };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(syntax)?;
    let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or_default();
    if found != u64::from(K::VERSION) {
        return Err(Damage::Version { path, found, wanted: K::VERSION });
    }
    let node = value.get("cn_uuid").and_then(serde_json::Value::as_str).unwrap_or_default();
    if node != cn_uuid {
        let found = node.to_owned();
        return Err(Damage::Node { path, found });
    }
    Ok(Some(serde_json::from_value(value).map_err(syntax)?))
}
