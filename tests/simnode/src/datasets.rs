// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of the node's datasets, volumes and snapshots with their properties, and its stored
//! form. Pure.

use indexmap::IndexMap;

/// The columns of `zfs list -o`, in the order in which they are stored.
pub const COLUMNS: [&str; 17] = [
    "compression",
    "creation",
    "filesystem_limit",
    "mountpoint",
    "name",
    "quota",
    "recsize",
    "refquota",
    "refreservation",
    "snapshot_limit",
    "type",
    "usedbysnapshots",
    "userrefs",
    "volblocksize",
    "volsize",
    "written",
    "zoned",
];
/// The text for "no limit".
pub const NO_LIMIT: &str = "18446744073709551615";
/// Properties that may be set besides those of [`COLUMNS`].
pub(crate) const OTHER: [&str; 16] = [
    "atime",
    "canmount",
    "checksum",
    "copies",
    "devices",
    "exec",
    "logbias",
    "primarycache",
    "readonly",
    "reservation",
    "secondarycache",
    "setuid",
    "snapdir",
    "sync",
    "sharenfs",
    "origin",
];

/// One internal history record, which becomes one sysevent.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The dataset.
    pub dsname: String,
    /// The action, such as `set` or `clone swap`.
    pub action: &'static str,
    /// Details in the words of zfs.
    pub detail: String,
    /// The dataset's number.
    pub dsid: u64,
    /// The transaction group.
    pub txg: u64,
}

/// One dataset, volume or snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// `pool/a/b` or `pool/a/b@snap`.
    pub name: String,
    pub(crate) dsid: u64,
    pub(crate) txg: u64,
    pub(crate) props: IndexMap<String, String>,
}

impl Dataset {
    /// A property, `-` when it has none.
    pub fn get(&self, key: &str) -> &str {
        match key {
            "name" => &self.name,
            "recordsize" => self.get("recsize"),
            "used" | "refer" | "referenced" => self.get("written"),
            _ => self.props.get(key).map_or("-", String::as_str),
        }
    }

    pub(crate) fn put(&mut self, key: &str, value: impl Into<String>) {
        self.props.insert(key.to_string(), value.into());
    }

    /// filesystem, volume or snapshot.
    pub fn kind(&self) -> &str {
        self.get("type")
    }

    /// Depth below the pool; a snapshot is one below its dataset.
    pub fn depth(&self) -> usize {
        self.name.matches(['/', '@']).count()
    }
}

/// Every dataset of the node, by name.
#[derive(Clone, Debug, Default)]
pub struct Datasets {
    pub(crate) rows: IndexMap<String, Dataset>,
    pub(crate) dsid: u64,
    pub(crate) txg: u64,
}

pub(crate) fn owner(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

impl Datasets {
    /// Reads the stored table.
    pub fn parse(text: &str) -> Result<Datasets, String> {
        let mut all = Datasets::default();
        for (n, line) in text.lines().enumerate() {
            let fields: Vec<&str> = line.split('\t').collect();
            let bad =
                || format!("line {}: expected {} tab-separated fields", n + 1, COLUMNS.len() + 3);
            let [dsid, txg, middle @ .., other] = fields.as_slice() else { return Err(bad()) };
            if middle.len() != COLUMNS.len() {
                return Err(bad());
            }
            let (Ok(dsid), Ok(txg)) = (dsid.parse(), txg.parse()) else { return Err(bad()) };
            let mut props: IndexMap<String, String> = COLUMNS
                .iter()
                .zip(middle)
                .filter(|(_, v)| **v != "-")
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect();
            let name = props.shift_remove("name").ok_or_else(bad)?;
            let other: IndexMap<String, String> =
                serde_json::from_str(other).map_err(|e| format!("line {}: {e}", n + 1))?;
            props.extend(other);
            all.dsid = all.dsid.max(dsid);
            all.txg = all.txg.max(txg);
            all.rows.insert(name.clone(), Dataset { name, dsid, txg, props });
        }
        Ok(all)
    }

    /// The table as it is stored.
    pub fn print(&self) -> String {
        let mut text = String::new();
        for row in self.rows.values() {
            text.push_str(&format!("{}\t{}\t", row.dsid, row.txg));
            for column in COLUMNS {
                text.push_str(row.get(column));
                text.push('\t');
            }
            let other: IndexMap<&String, &String> =
                row.props.iter().filter(|(k, _)| !COLUMNS.contains(&k.as_str())).collect();
            text.push_str(&serde_json::to_string(&other).unwrap_or_else(|_| "{}".to_string()));
            text.push('\n');
        }
        text
    }

    /// One dataset or snapshot.
    pub fn get(&self, name: &str) -> Option<&Dataset> {
        self.rows.get(name)
    }

    /// Everything in the order of `zfs list`: by name, snapshots right after their dataset by age.
    pub fn sorted(&self) -> Vec<&Dataset> {
        let mut rows: Vec<&Dataset> = self.rows.values().collect();
        rows.sort_by(|a, b| {
            let key = |d: &Dataset| (owner(&d.name).to_string(), d.kind() == "snapshot");
            key(a).cmp(&key(b)).then(a.txg.cmp(&b.txg)).then(a.name.cmp(&b.name))
        });
        rows
    }

    /// Sets a creation time that does not depend on the clock.
    pub fn age(&mut self, from: i64) {
        for (at, row) in (0_i64..).zip(self.rows.values_mut()) {
            row.put("creation", (from + at).to_string());
        }
    }
}
