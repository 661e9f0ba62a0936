// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The snapshot that a `zfs receive` is taking: what of it is kept, and how it appears when it is whole.

use indexmap::IndexMap;

use crate::dataset_ops::{TOUCHED, UNMOUNTED, is_mounted};
use crate::datasets::{Datasets, History};
use crate::error::NodeError;
use crate::mounts::Receiving;
use crate::node::{Node, Zfs};
use crate::receive_rules::{Flags, PARTIAL, Verdict, refused};
use crate::stream::Begin;
use crate::streams::partial::Partial;
use crate::trees::{Change, Tree};

/// The snapshot that is arriving.
pub(super) struct Current {
    pub(super) begin: Begin,
    /// What becomes of it.
    pub(super) verdict: Verdict,
    /// What has arrived.
    pub(super) changes: Vec<Change>,
    /// The bytes of data that may still come.
    pub(super) room: u64,
    /// The same in a file, where it is kept.
    pub(super) partial: Option<Partial>,
    /// Its dataset is busy.
    pub(super) _busy: Option<Receiving>,
}

impl Verdict {
    pub(super) fn name(&self) -> &str {
        match self {
            Verdict::Skip => "",
            Verdict::New { name, .. }
            | Verdict::Overwrite { name }
            | Verdict::Increment { name, .. }
            | Verdict::Resume { name } => name,
        }
    }
}

/// Where a snapshot goes.
pub(super) struct Destination<'a> {
    pub(super) node: &'a Node,
    pub(super) flags: &'a Flags,
    /// The properties that the stream has for its dataset.
    pub(super) props: Option<IndexMap<String, String>>,
    /// Its dataset is the one that was named.
    pub(super) is_top: bool,
}

impl Current {
    /// Returns true if the snapshot makes the dataset.
    fn is_new(&self, all: &Datasets) -> bool {
        let started = all.get(self.verdict.name()).is_some_and(|row| row.get(PARTIAL) == "new");
        started || matches!(self.verdict, Verdict::New { .. })
    }

    /// Prepares to keep what arrives, or goes on with what was kept.
    pub(super) fn keep(&mut self, node: &Node, resumable: bool) -> Result<(), NodeError> {
        let name = self.verdict.name().to_string();
        if let Verdict::Resume { .. } = self.verdict {
            let kept = Partial::resume(node, &name)?;
            let fits = |begin: &Begin, changes: &[Change]| {
                (begin.guid, begin.from, Some(changes.len() as u64))
                    == (self.begin.guid, self.begin.from, self.begin.resume)
            };
            let Some((partial, begin, changes)) = kept.filter(|(_, b, c)| fits(b, c)) else {
                let why = format!("destination '{name}' has another part of it");
                return Err(NodeError::refused(format!("cannot receive resume stream: {why}")));
            };
            self.begin.snapshot = begin.snapshot;
            (self.partial, self.changes) = (Some(partial), changes);
        } else if resumable && self.verdict != Verdict::Skip {
            self.partial = Some(Partial::begin(node, &name, &self.begin)?);
            node.zfs(|all| {
                let is_new = self.is_new(all);
                create_row(all, &name, &self.begin)?;
                let row = all.need(&name)?;
                row.put(PARTIAL, if is_new { "new" } else { "more" });
                if is_new {
                    row.put(UNMOUNTED, "yes");
                }
                Ok(if is_new { vec![all.record(&name, "receive", "")] } else { Vec::new() })
            })?;
        }
        Ok(())
    }

    /// Makes the snapshot. The node's lock is held.
    pub(super) fn commit(
        &self,
        all: &mut Datasets,
        to: &Destination<'_>,
    ) -> Result<Vec<History>, NodeError> {
        let begin = &self.begin;
        let name = self.verdict.name();
        let base = match &self.verdict {
            Verdict::New { origin, .. } => origin.clone(),
            Verdict::Increment { base, .. } => Some(base.clone()),
            Verdict::Resume { .. } => match begin.from {
                Some(guid) => {
                    let found = all.by_guid(guid, name).map(|row| row.name.clone());
                    Some(found.ok_or_else(|| refused(begin, "the base is gone"))?)
                }
                None => None,
            },
            Verdict::Overwrite { .. } | Verdict::Skip => None,
        };
        let is_new = self.is_new(all);
        let mut history = Vec::new();
        if is_new {
            to.create(all, name, begin, base.as_deref())?;
            history.push(all.record(name, "receive", ""));
        } else {
            let shadow = format!("{name}/%recv");
            history.push(all.record(&shadow, "receive", ""));
            if let Some(base) = base.as_deref().filter(|_| to.node.info().zfs == Zfs::Illumos) {
                let age = all.need(base)?.txg;
                let newer = all.snapshots(name).into_iter().filter(|row| row.txg > age);
                for newer in newer.map(|row| row.name.clone()).collect::<Vec<_>>() {
                    history.extend(all.destroy(&newer, false)?);
                }
            }
            history.push(all.record(&shadow, "clone swap", format!("parent={name}")));
        }
        let mut tree = match &base {
            Some(base) => to.node.contents(all, base)?,
            None => Tree::default(),
        };
        if !self.changes.iter().all(|change| tree.apply(change.clone())) {
            return Err(refused(begin, "invalid backup stream"));
        }
        let row = all.need(name)?;
        row.props.shift_remove(PARTIAL);
        if let Some(size) = begin.volume {
            row.put("volsize", size.to_string());
        }
        let number = |key: &str| row.get(key).parse::<u64>().unwrap_or(0);
        if number("refquota") > 0 && number("written") + tree.size() > number("refquota") {
            return Err(refused(begin, "out of space"));
        }
        to.set_properties(all, name)?;
        to.node.set_contents(all, name, &tree)?;
        history.push(all.record(name, "finish receiving", format!("snap={}", begin.snapshot)));
        let snapshot = format!("{name}@{}", begin.snapshot);
        history.extend(all.snapshot(&snapshot, false)?);
        let row = all.need(&snapshot)?;
        row.put("guid", begin.guid.to_string());
        row.put("creation", begin.creation.as_str());
        all.receive_properties(&snapshot, begin.props.clone());
        let row = all.need(name)?;
        if is_mounted(row) {
            row.put(TOUCHED, "yes");
        }
        Ok(history)
    }
}

impl Destination<'_> {
    fn create(
        &self,
        all: &mut Datasets,
        name: &str,
        begin: &Begin,
        origin: Option<&str>,
    ) -> Result<(), NodeError> {
        create_row(all, name, begin)?;
        let row = all.need(name)?;
        if let Some(origin) = origin {
            row.put("origin", origin);
        }
        match self.flags.unmounted {
            true => row.put(UNMOUNTED, "yes"),
            false => drop(row.props.shift_remove(UNMOUNTED)),
        }
        Ok(())
    }

    /// The properties of the stream, but for those that the options replace.
    fn set_properties(&self, all: &mut Datasets, name: &str) -> Result<(), NodeError> {
        let flags = self.flags;
        if let Some(mut brought) = self.props.clone() {
            brought.retain(|key, _| {
                !flags.without.contains(key) && flags.with.iter().all(|(with, _)| with != key)
            });
            all.receive_properties(name, brought);
        }
        if self.is_top {
            for (key, value) in &flags.with {
                all.set(name, key, value)?;
            }
        }
        Ok(())
    }
}

fn create_row(all: &mut Datasets, name: &str, begin: &Begin) -> Result<(), NodeError> {
    if all.get(name).is_none() {
        match begin.volume {
            Some(size) => all.new_volume(name, size)?,
            None => all.new_filesystem(name)?,
        };
        if begin.raw {
            all.keep_foreign_key(name);
        }
    }
    Ok(())
}
