// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `zfs send` puts into a stream: which snapshots, each based on which one. Pure.

use crate::datasets::{Dataset, Datasets, is_below, owner};
use crate::error::NodeError;
use crate::stream::{Begin, Package, Packed};

/// The arguments of a `zfs send`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `fs@snapshot`.
    pub to: String,
    /// The base: `@snapshot`, `#bookmark`, or with the dataset.
    pub from: Option<String>,
    /// Every snapshot from the base on (`-I`).
    pub all: bool,
    /// The datasets below, all properties, and what is gone (`-R`).
    pub replicate: bool,
    /// The properties (`-p`).
    pub props: bool,
    /// As it is encrypted (`-w`).
    pub raw: bool,
}

/// One snapshot of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub begin: Begin,
    /// The snapshot or bookmark that the receiver has.
    pub base: Option<String>,
    pub to: String,
}

/// A whole stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What is in it, if there is more than one snapshot or there are properties.
    pub package: Option<Package>,
    pub parts: Vec<Part>,
    /// What cannot be sent. The stream is sent without it, and the status is 1.
    pub warnings: Vec<String>,
}

fn refused(to: &str, why: impl std::fmt::Display) -> NodeError {
    NodeError::refused(format!("warning: cannot send '{to}': {why}"))
}

/// The base in full, or `None` if another dataset has it.
fn base_name(dataset: &Dataset, from: &str) -> Option<String> {
    if from.starts_with(['@', '#']) {
        return Some(format!("{}{from}", dataset.name));
    }
    if !from.contains(['@', '#']) {
        return Some(format!("{}@{from}", dataset.name));
    }
    let is_own = owner(from) == dataset.name || dataset.get("origin") == from;
    is_own.then(|| from.to_string())
}

impl Datasets {
    /// The stream for these arguments.
    pub fn plan(&self, wanted: &Wanted) -> Result<Plan, NodeError> {
        let (top, snap) = wanted.to.split_once('@').unwrap_or((&wanted.to, ""));
        let top = self.get(top).ok_or_else(|| NodeError::NoSuchDataset(top.to_string()))?;
        let base = match &wanted.from {
            Some(from) => Some(base_name(top, from).ok_or(NodeError::OtherFilesystem)?),
            None => None,
        };
        if let (Some(base), Some(from)) = (&base, &wanted.from) {
            let missing =
                || refused(&wanted.to, format!("incremental source ({from}) does not exist"));
            let base = self.get(base).ok_or_else(missing)?;
            let later = self.get(&wanted.to).is_some_and(|to| base.txg >= to.txg);
            if later && owner(&base.name) == top.name {
                return Err(refused(&wanted.to, "not an earlier snapshot from the same fs"));
            }
            if wanted.all && base.kind() == "bookmark" {
                return Err(refused(
                    &wanted.to,
                    "multiple snapshots cannot be sent from a bookmark",
                ));
            }
        }
        let mut plan = Plan::default();
        let datasets = if wanted.replicate { self.origins_first(&top.name) } else { vec![top] };
        self.may_be_read(&datasets, wanted)?;
        let mut packed = Vec::new();
        for dataset in datasets {
            let to = format!("{}@{snap}", dataset.name);
            if self.get(&to).is_none() {
                plan.warnings.push(format!("WARNING: could not send {to}: does not exist"));
                continue;
            }
            let base = match base.as_deref() {
                Some(base) if dataset.name == top.name => Some(base.to_string()),
                // The child has its own snapshot of that name.
                Some(base) => base
                    .rfind(['@', '#'])
                    .and_then(|at| Some(format!("{}{}", dataset.name, base.get(at..)?))),
                None => None,
            };
            let parts = self.parts(dataset, &to, base.as_deref(), wanted);
            packed.push(self.packed(dataset, &top.name, &to, wanted));
            plan.parts.extend(parts);
        }
        let is_package = wanted.replicate || wanted.props || wanted.all && wanted.from.is_some();
        if is_package && !packed.is_empty() {
            let incremental = wanted.from.is_some();
            plan.package = Some(Package::new(&top.name, wanted.replicate, incremental, packed));
        }
        Ok(plan)
    }

    /// The tree of a dataset as libzfs sends it: a clone after what it was made of, where that is in the tree too.
    fn origins_first(&self, top: &str) -> Vec<&Dataset> {
        let (mut left, mut sent) = (self.tree(top), Vec::new());
        while !left.is_empty() {
            let before = left.len();
            for dataset in std::mem::take(&mut left) {
                let parent = dataset.name.rsplit_once('/').map_or("", |(parent, _)| parent);
                let waits = |name: &str| {
                    let is_sent = |it: &&Dataset| it.name == name;
                    is_below(name, top) && !sent.iter().any(is_sent)
                };
                match waits(owner(dataset.get("origin"))) || waits(parent) {
                    true => left.push(dataset),
                    false => sent.push(dataset),
                }
            }
            if left.len() == before {
                sent.append(&mut left); // no pool has that
            }
        }
        sent
    }

    /// libzfs makes no package of an encrypted dataset that is not raw: `-I` needs one as `-p` and `-R` do.
    fn may_be_read(&self, datasets: &[&Dataset], wanted: &Wanted) -> Result<(), NodeError> {
        let is_package = wanted.replicate || wanted.props || wanted.all && wanted.from.is_some();
        let mut encrypted = datasets.iter().filter(|of| self.key_of(&of.name).is_some());
        if let Some(first) = encrypted.clone().next().filter(|_| is_package && !wanted.raw) {
            let why = "may not be sent with properties without the raw flag";
            let what = format!("cannot send {}: encrypted dataset {} {why}", wanted.to, first.name);
            return Err(NodeError::refused(what));
        }
        match encrypted.find(|of| !wanted.raw && self.is_locked(&of.name)) {
            Some(_) => Err(refused(&wanted.to, "dataset key must be loaded")),
            None => Ok(()),
        }
    }

    fn packed(&self, dataset: &Dataset, top: &str, to: &str, wanted: &Wanted) -> Packed {
        let until = self.get(to).map_or(0, |row| row.txg);
        let snapshots = self.snapshots(&dataset.name);
        Packed {
            path: dataset.name.strip_prefix(top).unwrap_or_default().to_string(),
            props: (wanted.replicate || wanted.props).then(|| self.own_properties(&dataset.name)),
            snapshots: snapshots
                .iter()
                .filter(|row| row.txg <= until)
                .filter_map(|row| row.guid())
                .collect(),
        }
    }

    /// The snapshots of one dataset that are sent.
    fn parts(&self, dataset: &Dataset, to: &str, base: Option<&str>, wanted: &Wanted) -> Vec<Part> {
        let until = self.get(to).map_or(0, |row| row.txg);
        let base = base.and_then(|base| self.get(base));
        let is_origin = base.is_some_and(|base| owner(&base.name) != dataset.name);
        let after = base.filter(|_| !is_origin).map_or(0, |base| base.txg);
        // A child that lacks the base is sent whole.
        let every = wanted.all || wanted.replicate && (wanted.from.is_none() || base.is_none());
        let sent = self
            .snapshots(&dataset.name)
            .into_iter()
            .filter(|row| row.name == to || every && row.txg > after && row.txg <= until);
        let origin = || self.get(dataset.get("origin")).filter(|_| wanted.replicate);
        let mut base = base.or_else(origin);
        let mut parts = Vec::new();
        for row in sent {
            parts.push(self.part(dataset, row, base, wanted));
            base = Some(row);
        }
        parts
    }

    fn part(
        &self,
        dataset: &Dataset,
        to: &Dataset,
        base: Option<&Dataset>,
        wanted: &Wanted,
    ) -> Part {
        let snapshot = to.name.split_once('@').map_or("", |(_, snap)| snap);
        let mut begin = Begin::new(&dataset.name, snapshot, to.guid().unwrap_or(0));
        begin.from = base.and_then(Dataset::guid);
        begin.clone = base.is_some_and(|base| owner(&base.name) != dataset.name);
        begin.volume = dataset.props.get("volsize").and_then(|size| size.parse().ok());
        begin.creation = to.get("creation").to_string();
        begin.raw = wanted.raw && self.key_of(&dataset.name).is_some();
        if wanted.replicate || wanted.props {
            begin.props = self.own_properties(&to.name);
        }
        Part { begin, base: base.map(|base| base.name.clone()), to: to.name.clone() }
    }

    /// The rest of a stream of which the receiver has so many records.
    pub fn resumed(&self, at: &Begin) -> Result<Plan, NodeError> {
        let to = format!("{}@{}", at.dataset, at.snapshot);
        let cannot = |why: String| NodeError::refused(format!("cannot resume send: {why}"));
        let (Some(dataset), Some(row)) = (self.get(&at.dataset), self.get(&to)) else {
            return Err(cannot(format!("'{to}' used in the initial send no longer exists")));
        };
        if row.guid() != Some(at.guid) {
            let why = format!("'{to}' is no longer the same snapshot used in the initial send");
            return Err(cannot(why));
        }
        let base = match at.from {
            Some(guid) => {
                let mut own = self.rows.values().filter(|row| owner(&row.name) == dataset.name);
                let own = own.find(|row| row.name.contains(['@', '#']) && row.guid() == Some(guid));
                let origin = self.get(dataset.get("origin")).filter(|o| o.guid() == Some(guid));
                let missing = || cannot(format!("incremental source {guid:#x} no longer exists"));
                Some(own.or(origin).ok_or_else(missing)?)
            }
            None => None,
        };
        let wanted = Wanted { to, raw: at.raw, ..Wanted::default() };
        self.may_be_read(&[dataset], &wanted)?;
        let mut part = self.part(dataset, row, base, &wanted);
        part.begin.props.clone_from(&at.props);
        part.begin.resume = at.resume;
        Ok(Plan { parts: vec![part], ..Plan::default() })
    }
}
