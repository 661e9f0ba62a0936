// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `zfs receive` does with a snapshot that begins, and why it refuses. Pure.

use crate::dataset_ops::TOUCHED;
use crate::datasets::{Dataset, Datasets};
use crate::error::NodeError;
use crate::node::Zfs;
use crate::stream::{Begin, Package};

/// Mark of a dataset with a part of a snapshot: `new` if there was no dataset before.
pub(crate) const PARTIAL: &str = "%partial";

/// The options of a `zfs receive`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-F`: changes and newer snapshots of the destination are dropped.
    pub force: bool,
    /// `-s`: what arrived is kept, to be resumed.
    pub resumable: bool,
    /// `-u`: nothing is mounted.
    pub unmounted: bool,
    /// `-x`: properties of the stream that are not taken.
    pub without: Vec<String>,
    /// `-o`: properties that are set instead.
    pub with: Vec<(String, String)>,
}

/// What becomes of a snapshot of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The destination has it: its records are read and dropped.
    Skip,
    /// It makes a dataset, which is a clone if it has an origin.
    New {
        name: String,
        /// The snapshot that it is a clone of.
        origin: Option<String>,
    },
    /// It replaces the contents of a dataset that has no snapshots.
    Overwrite { name: String },
    /// It follows a snapshot.
    Increment {
        name: String,
        /// The snapshot that it is based on.
        base: String,
    },
    /// It goes on where an earlier receive ended.
    Resume { name: String },
}

/// The words of `zfs receive` for a stream.
pub fn stream_kind(begin: &Begin) -> &'static str {
    if begin.from.is_some() && !begin.clone { "incremental" } else { "new filesystem" }
}

/// A refusal in the words of `zfs receive`.
pub fn refused(begin: &Begin, why: impl std::fmt::Display) -> NodeError {
    NodeError::refused(format!("cannot receive {} stream: {why}", stream_kind(begin)))
}

/// Returns true if two snapshots, or a dataset and a snapshot, have the same contents.
pub type Same<'a> = &'a dyn Fn(&str, &str) -> Result<bool, NodeError>;

/// The stream and the node that a snapshot meets.
pub struct Arrival<'a> {
    /// The node's datasets.
    pub all: &'a Datasets,
    /// Which `zfs` receives.
    pub zfs: Zfs,
    pub flags: &'a Flags,
    /// There are several snapshots in the stream.
    pub package: bool,
    pub same: Same<'a>,
}

impl Arrival<'_> {
    /// What becomes of a snapshot that is sent to the dataset `name`.
    pub fn judge(&self, name: &str, begin: &Begin) -> Result<Verdict, NodeError> {
        let existing = self.all.get(name);
        let partial = existing.filter(|row| row.props.contains_key(PARTIAL));
        if begin.resume.is_some() {
            let missing = || {
                let why = format!("destination '{name}' has no part of it");
                NodeError::refused(format!("cannot receive resume stream: {why}"))
            };
            return partial.map(|_| Verdict::Resume { name: name.to_string() }).ok_or_else(missing);
        }
        if partial.is_some() {
            let why = format!(
                "destination '{name}' contains\npartially-complete state from \"zfs receive -s\"."
            );
            return Err(refused(begin, why));
        }
        if existing.is_some_and(|row| !begin.raw && self.all.is_locked(&row.name)) {
            return Err(refused(begin, "inherited key must be loaded"));
        }
        match (begin.from, existing) {
            (Some(base), _) if !begin.clone => self.increment(name, base, begin),
            (_, Some(row)) => self.overwrite(row, begin),
            (from, None) => {
                let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
                if self.all.get(parent).is_none() {
                    return Err(refused(begin, "dataset does not exist"));
                }
                if !begin.raw && self.all.is_locked(parent) {
                    return Err(refused(begin, "inherited key must be loaded"));
                }
                let origin = from.map(|guid| {
                    let found = self.all.by_guid(guid, parent).map(|row| row.name.clone());
                    found.ok_or_else(|| {
                        let why = format!("local origin for clone {name} does not exist");
                        NodeError::refused(format!("cannot receive: {why}"))
                    })
                });
                Ok(Verdict::New { name: name.to_string(), origin: origin.transpose()? })
            }
        }
    }

    fn overwrite(&self, row: &Dataset, begin: &Begin) -> Result<Verdict, NodeError> {
        let name = row.name.clone();
        if !self.flags.force {
            let why = format!("destination '{name}' exists\nmust specify -F to overwrite it");
            return Err(refused(begin, why));
        }
        if let Some(snapshot) = self.all.snapshots(&name).first() {
            let why = format!(
                "destination has snapshots (eg. {})\nmust destroy them to overwrite it",
                snapshot.name
            );
            return Err(refused(begin, why));
        }
        if row.props.contains_key("origin") || begin.clone {
            let why = format!("destination '{name}' is a clone\nmust destroy it to overwrite it");
            return Err(refused(begin, why));
        }
        Ok(Verdict::Overwrite { name })
    }

    fn increment(&self, name: &str, base: u64, begin: &Begin) -> Result<Verdict, NodeError> {
        // A dataset that is not there may have been renamed: the one with the base is meant.
        let name = match self.all.get(name) {
            Some(_) => name,
            None => match self.all.by_guid(base, name) {
                Some(row) => row.name.split('@').next().unwrap_or(name),
                None => return Err(refused(begin, format!("destination '{name}' does not exist"))),
            },
        };
        let snapshots = self.all.snapshots(name);
        let to = format!("{name}@{}", begin.snapshot);
        let found = snapshots.iter().position(|row| row.guid() == Some(base));
        let no_match = || {
            let why = format!("most recent snapshot of {name} does not\nmatch incremental source");
            Err(refused(begin, why))
        };
        let Some(at) = found else { return no_match() };
        let base = snapshots[at];
        if self.zfs == Zfs::Fuse {
            for newer in &snapshots[at + 1..] {
                if !(self.same)(&newer.name, &base.name)? {
                    return no_match();
                }
            }
        }
        if let Some(present) = self.all.get(&to) {
            let ours = self.package && present.guid() == Some(begin.guid);
            let why = || {
                NodeError::refused(format!("cannot restore to {to}: destination already exists"))
            };
            return if ours { Ok(Verdict::Skip) } else { Err(why()) };
        }
        let touched = self.all.get(name).is_some_and(|row| row.props.contains_key(TOUCHED));
        if !self.flags.force && (touched || !(self.same)(name, &base.name)?) {
            let why = format!("destination {name} has been modified\nsince most recent snapshot");
            return Err(refused(begin, why));
        }
        Ok(Verdict::Increment { name: name.to_string(), base: base.name.clone() })
    }
}

impl Datasets {
    /// What a forced receive of an incremental `-R` stream destroys first: datasets that the sender
    /// does not have, and snapshots.
    pub fn gone_from(&self, package: &Package, top: &str) -> Vec<String> {
        if !package.replicate || !package.incremental {
            return Vec::new();
        }
        let mut gone: Vec<String> = Vec::new();
        for row in self.tree(top) {
            let path = row.name.strip_prefix(top).unwrap_or_default();
            let sent = package.filesystems.iter().find(|packed| packed.path == path);
            let Some(sent) = sent else {
                let inside = gone.iter().any(|name| crate::datasets::is_below(&row.name, name));
                if !inside {
                    gone.push(row.name.clone());
                }
                continue;
            };
            let unknown =
                |row: &&Dataset| row.guid().is_none_or(|guid| !sent.snapshots.contains(&guid));
            let snapshots = self.snapshots(&row.name).into_iter();
            gone.extend(snapshots.filter(unknown).map(|row| row.name.clone()));
        }
        gone
    }
}
