// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What outlives the agent: for each migration the highest revision that it received, and what it made or changed on
//! the node, so that after kill -9 or a reboot it can finish or undo it when it is ordered.
//!
//! The state file `memory.json` has the open migrations and is replaced before what it announces is done. `over.log`
//! has a line for each migration that is over; its order is the order of ends.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use daemon::disk;
use daemon::json_lines::JsonLines;
use daemon::state_file::{Damage, State, StateFile, Unwritten};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::vm::Run;
use migration_core::intent::{End, Power, differ};
use migration_core::protocol::{About, Properties};
use migration_core::sync_plan::Notes;

/// Migrations that are open at once.
const OPEN: usize = 1024;
/// The longest part of the file of migrations that are over: at a hundred a day on one node those of five years.
const LONGEST: usize = 14 << 20;

/// What is known of an open migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub vm: Uuid,
    /// Which copy is here.
    pub end: End,
    /// The highest revision that was received.
    pub revision: u64,
    #[serde(default)]
    pub nonce: Option<u32>,
    /// net-agent is held, and the hold is renewed.
    #[serde(default)]
    pub hold: bool,
    /// `do_not_inventory` was set here.
    #[serde(default)]
    pub hidden: bool,
    /// What quota and refquota are to be again, and `canmount` of what is the zone's.
    #[serde(default)]
    pub quotas: Properties,
    /// The quota of these datasets was lifted to send them. Where an operator has set another since, that one stays.
    #[serde(default)]
    pub tight: BTreeSet<String>,
    /// Streams came since the sender last found everything here.
    #[serde(default)]
    pub incoming: bool,
    /// The number of the snapshot of which everything came last.
    #[serde(default)]
    pub whole: Option<u32>,
    /// What the VM did when the newest sync snapshot was taken or received.
    #[serde(default)]
    pub run: Option<Run>,
    /// The VM waits for the service's answer whether its copy was replaced; until then this was taken from it.
    #[serde(default)]
    pub waits: Option<Taken>,
    /// What the VM did before an order of the migration took autoboot from it, or stopped it, and has not done since.
    #[serde(default)]
    pub power: Option<Power>,
    /// The copy is being deleted, or is gone: its datasets may be left.
    #[serde(default)]
    pub deletes: bool,
    /// The copy was replaced while its node was away.
    #[serde(default)]
    pub replaced: bool,
    /// The node of the other copy, where an order has named it.
    #[serde(default)]
    pub other: Option<Uuid>,
    /// The node that was declared dead, instead of whose copy this one was shown or booted.
    #[serde(default)]
    pub instead: Option<Uuid>,
    /// Sync snapshots that could not be destroyed, and others of their names that came with a stream: they are no part
    /// of the migration.
    #[serde(default)]
    pub left: BTreeSet<String>,
    /// By what the sync snapshots of the migration are known.
    #[serde(default)]
    pub known: Notes,
}

/// What a VM has again if its copy was not replaced while its node was away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// It boots with its node.
    pub autoboot: bool,
    /// It is not hidden.
    pub shown: bool,
}

impl Entry {
    /// Returns true for the number of a snapshot that may have come in part.
    pub fn may_lack(&self, number: u32) -> bool {
        self.incoming && number > self.whole.unwrap_or(0)
    }

    /// The VM has something again.
    pub fn give(&mut self, given: impl FnOnce(&mut Power)) {
        if let Some(power) = &mut self.power {
            given(power);
        }
        self.power = self.power.filter(|power| power.running || power.autoboot);
    }

    /// A dataset gets another name, with all below it.
    pub fn rename(&mut self, from: &str, to: &str) {
        let renamed = |name: &String| match name.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '@']) => format!("{to}{rest}"),
            _ => name.clone(),
        };
        self.quotas = self.quotas.iter().map(|(name, of)| (renamed(name), of.clone())).collect();
        self.tight = self.tight.iter().map(renamed).collect();
        self.left = self.left.iter().map(renamed).collect();
    }

    fn new(about: &About) -> Entry {
        Entry {
            vm: about.vm,
            end: about.end,
            revision: about.revision,
            nonce: about.nonce,
            hold: false,
            hidden: false,
            quotas: Properties::new(),
            tight: BTreeSet::new(),
            incoming: false,
            whole: None,
            run: None,
            waits: None,
            power: None,
            deletes: false,
            replaced: false,
            other: None,
            instead: None,
            left: BTreeSet::new(),
            known: Notes::default(),
        }
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Saved {
    open: BTreeMap<Uuid, Entry>,
}

impl State for Saved {
    const VERSION: u32 = 1;
    const UNWRITTEN: &str = "the state file cannot be written: no order is taken";

    fn is_same(&self, other: &Saved) -> bool {
        self.open == other.open
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Line {
    migration: Uuid,
    revision: u64,
}

/// Why a request is not taken, or something is not done.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// A higher revision of the record was received.
    #[error(
        "revision {asked} of migration {migration} is old: this agent has accepted revision {accepted}"
    )]
    Old {
        migration: Uuid,
        /// The revision of the request.
        asked: u64,
        /// The one that was accepted.
        accepted: u64,
    },
    /// The same revision was received with another nonce: the service's store was restored.
    #[error(
        "revision {revision} of migration {migration} is not the one that this agent has accepted: migration-service's store was restored"
    )]
    Restored { migration: Uuid, revision: u64 },
    /// The migration is over.
    #[error("migration {0} is over")]
    Over(Uuid),
    /// The record is another VM's, or of the other copy.
    #[error("migration {0} is recorded here for another VM or the other copy")]
    Other(Uuid),
    /// Nothing is reported or done about a copy that may have been replaced.
    #[error(
        "migration-service has not answered yet whether the copy was replaced while its node was away"
    )]
    Waits,
    /// Too many are open.
    #[error("{OPEN} migrations are open on this node already")]
    TooMany,
    /// The state file cannot be written.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// The state file of an agent.
pub struct Memory {
    file: StateFile,
    over_file: JsonLines<Line>,
    /// One writes at a time.
    writing: tokio::sync::Mutex<()>,
    now: Mutex<Now>,
}

struct Now {
    kept: Saved,
    over: HashMap<Uuid, u64>,
    /// When a request about an open migration came last; none since the start.
    asked: HashMap<Uuid, Instant>,
    /// The file has all of it.
    is_written: bool,
}

impl Memory {
    /// Reads the state file of this node.
    pub async fn read(dir: &Path, cn: Uuid) -> Result<Memory, Damage> {
        let file = StateFile::new(dir, &cn.to_string(), Arc::new(Notify::new()));
        let kept = file.read::<Saved>().await?.unwrap_or_default();
        let over_file = JsonLines::new(dir, "over.log", LONGEST);
        let lines = over_file.clone();
        let over = disk::blocking(move || {
            Ok(lines.read()?.into_iter().collect::<Result<Vec<Line>, _>>()?)
        })
        .await;
        let over = over.unwrap_or_else(|| Err(io::Error::other("the read was aborted")));
        let damaged = |source| Damage::Io { path: over_file.path().to_owned(), source };
        let over = over
            .map_err(damaged)?
            .into_iter()
            .map(|line| (line.migration, line.revision))
            .collect();
        let now = Mutex::new(Now { kept, over, asked: HashMap::new(), is_written: true });
        Ok(Memory { file, over_file, writing: tokio::sync::Mutex::default(), now })
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of an open migration.
    pub fn get(&self, migration: Uuid) -> Option<Entry> {
        self.now().kept.open.get(&migration).cloned()
    }

    /// Returns what is known of the open migration of a VM. There may be an older one whose end did not reach this
    /// agent: the one with the last request counts.
    pub fn of_vm(&self, vm: Uuid) -> Option<Entry> {
        let now = self.now();
        let of_it = now.kept.open.iter().filter(|(_, entry)| entry.vm == vm);
        of_it.max_by_key(|(id, _)| now.asked.get(id)).map(|(_, entry)| entry.clone())
    }

    /// Returns the open migrations.
    pub fn open(&self) -> BTreeMap<Uuid, Entry> {
        self.now().kept.open.clone()
    }

    /// Returns true if the migration is over.
    pub fn is_over(&self, migration: Uuid) -> bool {
        self.now().over.contains_key(&migration)
    }

    /// Returns true if no request about an open migration came for `span`, or since the start.
    pub fn is_quiet(&self, migration: Uuid, span: Duration) -> bool {
        self.now().asked.get(&migration).is_none_or(|at| at.elapsed() >= span)
    }

    /// Takes note of a request's revision, on the disk, so that older ones are refused from now on.
    pub async fn accept(&self, about: &About) -> Result<(), NotTaken> {
        self.accept_with(about, |_| {}).await
    }

    /// The same, with what the request says besides.
    pub async fn accept_with(
        &self,
        about: &About,
        named: impl FnOnce(&mut Entry),
    ) -> Result<(), NotTaken> {
        let id = about.migration;
        self.write(|now| {
            if now.over.contains_key(&id) {
                return Err(NotTaken::Over(id));
            }
            let is_full = now.kept.open.len() >= OPEN;
            let Some(entry) = now.kept.open.get_mut(&id) else {
                if is_full {
                    return Err(NotTaken::TooMany);
                }
                let mut entry = Entry::new(about);
                named(&mut entry);
                now.kept.open.insert(id, entry);
                now.asked.insert(id, Instant::now());
                return Ok(true);
            };
            if (entry.vm, entry.end) != (about.vm, about.end) {
                return Err(NotTaken::Other(id));
            }
            check(about, entry)?;
            if entry.waits.is_some() {
                return Err(NotTaken::Waits);
            }
            let before = entry.clone();
            if about.revision > entry.revision || about.nonce.is_some() {
                (entry.revision, entry.nonce) = (about.revision, about.nonce);
            }
            named(entry);
            let is_new = *entry != before;
            now.asked.insert(id, Instant::now());
            Ok(is_new)
        })
        .await
    }

    /// Refuses what another node's agent asks of a copy that it does not have to do with, or with an older revision
    /// than was received. Nothing is noted: only the service reports how far a migration is.
    pub fn is_known(&self, about: &About) -> Result<(), NotTaken> {
        let now = self.now();
        let id = about.migration;
        match now.kept.open.get(&id) {
            Some(entry) if (entry.vm, entry.end) != (about.vm, about.end) => {
                Err(NotTaken::Other(id))
            }
            Some(entry) if entry.waits.is_some() => Err(NotTaken::Waits),
            Some(entry) => check(about, entry),
            None => Err(NotTaken::Over(id)),
        }
    }

    /// Refuses a request that became old after it was received.
    pub fn is_newest(&self, about: &About) -> Result<(), NotTaken> {
        match self.now().kept.open.get(&about.migration) {
            Some(entry) => check(about, entry),
            None => Err(NotTaken::Over(about.migration)),
        }
    }

    /// Changes what is known of an open migration, on the disk before this returns.
    pub async fn change(
        &self,
        migration: Uuid,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), NotTaken> {
        self.write(|now| {
            let entry = now.kept.open.get_mut(&migration).ok_or(NotTaken::Over(migration))?;
            let before = entry.clone();
            change(entry);
            Ok(*entry != before)
        })
        .await
    }

    /// Remembers of a migration that it is over, and nothing else.
    pub async fn end(&self, about: &About) -> Result<(), NotTaken> {
        let line = Line { migration: about.migration, revision: about.revision };
        let file = self.over_file.clone();
        let is_new = self.now().over.insert(about.migration, about.revision).is_none();
        if is_new {
            let appended = disk::blocking(move || file.append(&line, true)).await;
            let appended =
                appended.unwrap_or_else(|| Err(io::Error::other("the write was aborted")));
            if let Err(error) = appended {
                self.now().over.remove(&about.migration);
                return Err(NotTaken::Unwritten(Unwritten::from(error)));
            }
        }
        self.write(|now| {
            now.asked.remove(&about.migration);
            Ok(now.kept.open.remove(&about.migration).is_some())
        })
        .await
    }

    /// Makes a change and writes the file. The change holds also where the file cannot be written: the agent then
    /// refuses more than it would after a restart, never less.
    async fn write(
        &self,
        change: impl FnOnce(&mut Now) -> Result<bool, NotTaken>,
    ) -> Result<(), NotTaken> {
        let _one_at_a_time = self.writing.lock().await;
        let kept = {
            let mut now = self.now();
            let is_changed = change(&mut now)?;
            now.is_written &= !is_changed;
            if now.is_written {
                return Ok(());
            }
            now.kept.clone()
        };
        self.file.write(kept).await?;
        self.now().is_written = true;
        Ok(())
    }
}

fn check(about: &About, entry: &Entry) -> Result<(), NotTaken> {
    let (migration, asked, accepted) = (about.migration, about.revision, entry.revision);
    match asked.cmp(&accepted) {
        Ordering::Less => Err(NotTaken::Old { migration, asked, accepted }),
        Ordering::Equal if differ(about.nonce, entry.nonce) => {
            Err(NotTaken::Restored { migration, revision: asked })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)] // M110
    async fn of_two_migrations_of_a_vm_the_one_that_was_asked_of_last_counts() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::read(dir.path(), Uuid::from_u128(1)).await.unwrap();
        let vm = Uuid::from_u128(2);
        for (first, second) in [(3, 4), (6, 5)] {
            for (id, end) in [(first, End::Target), (second, End::Source)] {
                tokio::time::advance(Duration::from_millis(1)).await;
                let about =
                    About { migration: Uuid::from_u128(id), revision: 1, nonce: None, vm, end };
                memory.accept(&about).await.unwrap();
            }
            assert_eq!(memory.of_vm(vm).unwrap().end, End::Source, "{first}, {second}");
        }
    }
}
