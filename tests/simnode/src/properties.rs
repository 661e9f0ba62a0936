// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules of properties: which there are, which values they take, what a dataset has of its
//! parent, and what a stream brings. Pure.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use vm_model::parse::zfs_list::COLUMNS;

use crate::datasets::{Dataset, Datasets, NO_LIMIT, is_below};
use crate::error::NodeError;
use crate::names::LONGEST;
use crate::payload;

/// Those that can be set, besides an operator's own, with what they are where nobody set them.
const SETTABLE: [(&str, &str); 15] = [
    ("atime", "on"),
    ("canmount", "on"),
    ("compression", "lz4"),
    ("filesystem_limit", NO_LIMIT),
    ("mountpoint", "-"),
    ("quota", "0"),
    ("readonly", "off"),
    ("recsize", "131072"),
    ("refquota", "0"),
    ("refreservation", "0"),
    ("reservation", "0"),
    ("snapshot_limit", NO_LIMIT),
    ("sync", "standard"),
    ("volsize", "-"),
    ("zoned", "off"),
];
/// Those that children have of their parents, besides an operator's own.
const INHERITED: [&str; 7] =
    ["atime", "compression", "mountpoint", "readonly", "recsize", "sync", "zoned"];
/// Those that only zfs sets.
pub(crate) const READ_ONLY: [&str; 20] = [
    "available",
    "createtxg",
    "creation",
    "encryption",
    "encryptionroot",
    "guid",
    "keystatus",
    "mounted",
    "name",
    "origin",
    "receive_resume_token",
    "refer",
    "referenced",
    "type",
    "used",
    "usedbydataset",
    "usedbysnapshots",
    "userrefs",
    "volblocksize",
    "written",
];

/// A mountpoint is shorter.
const LONGEST_PATH: usize = 4096;
/// The text of a user property is shorter.
const LONGEST_VALUE: usize = 8192;

/// The name under which the table has a property.
pub(crate) fn stored(key: &str) -> &str {
    if key == "recordsize" { "recsize" } else { key }
}

/// Returns true if zfs has the property.
pub(crate) fn is_known(key: &str) -> bool {
    let key = stored(key);
    key.contains(':')
        || SETTABLE.iter().any(|(known, _)| *known == key)
        || READ_ONLY.contains(&key)
        || COLUMNS.split(',').any(|known| known == key)
}

fn is_inherited(key: &str) -> bool {
    key.contains(':') || INHERITED.contains(&key)
}

fn default_of(key: &str) -> Option<&'static str> {
    SETTABLE.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
}

/// Returns a property's value in the form that zfs stores, or why it is invalid.
pub(crate) fn checked(name: &str, key: &str, value: &str) -> Result<String, NodeError> {
    let refused =
        |why: &str| NodeError::refused(format!("cannot set property for '{name}': '{key}' {why}"));
    let number = |parsed: Option<u64>| {
        let wrong = || {
            NodeError::refused(format!(
                "cannot set property for '{name}': bad numeric value '{value}'"
            ))
        };
        parsed.map(|number| number.to_string()).ok_or_else(wrong)
    };
    let invalid = || {
        let what = format!("cannot set property for '{name}': invalid property '{key}'");
        NodeError::refused(what)
    };
    match key {
        "quota" | "refquota" | "reservation" | "refreservation" | "volsize" | "recsize" => {
            match value {
                "none" => Ok("0".to_string()),
                text => number(payload::bytes(text)),
            }
        }
        "filesystem_limit" | "snapshot_limit" => match value {
            "none" => Ok(NO_LIMIT.to_string()),
            text => number(text.parse().ok()),
        },
        "zoned" | "readonly" | "atime" if !matches!(value, "on" | "off") => {
            Err(refused("must be one of 'on | off'"))
        }
        "canmount" if !matches!(value, "on" | "off" | "noauto") => {
            Err(refused("must be one of 'on | off | noauto'"))
        }
        // Any bytes but 0, tabs and line ends among them: who may set it owns all of the text.
        "mountpoint" if !value.starts_with('/') && !matches!(value, "none" | "legacy") => {
            Err(refused("must be an absolute path, 'none', or 'legacy'"))
        }
        "mountpoint" if value.split('/').any(|part| part.len() >= LONGEST) => {
            let what =
                format!("cannot set property for '{name}': component of '{key}' is too long");
            Err(NodeError::refused(what))
        }
        "mountpoint" if value.len() >= LONGEST_PATH => Err(refused("is too long")),
        key if key.contains(':') && !is_user_name(key) => Err(invalid()),
        key if key.contains(':') && value.len() >= LONGEST_VALUE => Err(refused("is too long")),
        key if key.contains(':') || default_of(key).is_some() => Ok(value.to_string()),
        key if is_known(key) => Err(refused("is readonly")),
        _ => Err(invalid()),
    }
}

/// Returns true if an operator or a tenant may give a property this name.
fn is_user_name(key: &str) -> bool {
    let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:".contains(&b);
    key.len() < LONGEST && key.bytes().all(fine)
}

/// Where a dataset is mounted that has this of another one above.
fn mountpoint_below(from: &Dataset, name: &str) -> String {
    let at = from.get("mountpoint");
    let rest = name.get(from.name.len()..).unwrap_or_default();
    if at.starts_with('/') { format!("{}{rest}", at.trim_end_matches('/')) } else { at.to_string() }
}

/// A value, and where it is from in the words of `zfs get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced {
    pub value: String,
    /// `local`, `received`, `default`, `inherited from DATASET`, or `-`.
    pub source: String,
}

impl Datasets {
    /// A property of one row as `zfs get` shows it. Sizes are what the table has.
    pub fn sourced(&self, row: &Dataset, key: &str) -> Sourced {
        let key = stored(key);
        let shown = |value: &str, source: &str| Sourced {
            value: value.to_string(),
            source: source.to_string(),
        };
        let is_dataset = !row.name.contains(['@', '#']);
        if READ_ONLY.contains(&key) || !is_dataset && !key.contains(':') {
            return shown(row.get(key), "-");
        }
        if row.local.contains(key) {
            return shown(row.get(key), "local");
        }
        if row.received.contains_key(key) {
            return shown(row.get(key), "received");
        }
        if is_inherited(key)
            && let Some(from) = self.giver(&row.name, key)
        {
            let value = match key {
                "mountpoint" if row.kind() != "filesystem" => return shown("-", "-"),
                _ => row.get(key),
            };
            let value = if value == "-" { from.get(key) } else { value };
            return shown(value, &format!("inherited from {}", from.name));
        }
        match (row.props.get(key), default_of(key)) {
            (Some(value), _) => shown(value, "default"),
            (None, Some(value)) if row.kind() == "filesystem" => shown(value, "default"),
            _ => shown("-", "-"),
        }
    }

    /// The names of the user properties that a row has, its own and those of datasets above.
    pub(crate) fn user_properties(&self, row: &Dataset) -> Vec<String> {
        let above = self.rows.values().filter(|other| is_below(&row.name, &other.name));
        let keys = above.chain([row]).flat_map(|row| row.props.keys());
        let own: BTreeSet<&String> = keys.filter(|key| key.contains(':')).collect();
        own.into_iter().cloned().collect()
    }

    /// The nearest dataset above that owns a property.
    fn giver(&self, name: &str, key: &str) -> Option<&Dataset> {
        let mut name = name;
        while let Some((parent, _)) = name.rsplit_once(['/', '@', '#']) {
            name = parent;
            if let Some(row) = self.rows.get(name).filter(|row| row.owns(key)) {
                return Some(row);
            }
        }
        None
    }

    /// Brings into force what a dataset and those below it have after its own value of a property
    /// changed.
    pub(crate) fn settle(&mut self, name: &str, key: &str) {
        let mut concerned: Vec<String> = vec![name.to_string()];
        if is_inherited(key) && !name.contains('@') {
            let below =
                |row: &&Dataset| is_below(&row.name, name) && !row.name.contains(['@', '#']);
            concerned.extend(self.rows.values().filter(below).map(|row| row.name.clone()));
            concerned.sort();
        }
        for name in concerned {
            let given = is_inherited(key).then(|| self.giver(&name, key)).flatten();
            let given = given.map(|row| match key {
                "mountpoint" => mountpoint_below(row, &name),
                _ => row.get(key).to_string(),
            });
            let Some(row) = self.rows.get_mut(&name) else { continue };
            if row.local.contains(key) {
                continue;
            }
            let default = match (key, row.kind()) {
                ("mountpoint", "filesystem") => Some(format!("/{name}")),
                ("volsize" | "mountpoint", _) => continue,
                _ => default_of(key).map(str::to_string),
            };
            match row.received.get(key).cloned().or(given).or(default) {
                Some(value) => row.put(key, value),
                None => {
                    row.props.shift_remove(key);
                }
            }
        }
    }

    /// What a stream carries of a row: what it owns.
    pub fn own_properties(&self, name: &str) -> IndexMap<String, String> {
        let Some(row) = self.rows.get(name) else { return IndexMap::new() };
        let mut own: Vec<&str> = row.props.keys().map(String::as_str).collect();
        own.retain(|key| row.owns(key));
        own.sort_unstable();
        own.into_iter().map(|key| (key.to_string(), row.get(key).to_string())).collect()
    }

    /// Takes what a stream brought: it replaces what an earlier stream brought, and local values
    /// cover it.
    pub(crate) fn receive_properties(&mut self, name: &str, brought: IndexMap<String, String>) {
        let Some(row) = self.rows.get_mut(name) else { return };
        let old = std::mem::replace(&mut row.received, brought);
        let keys: Vec<String> = old.into_keys().chain(row.received.keys().cloned()).collect();
        keys.iter().for_each(|key| self.settle(name, key));
    }
}
