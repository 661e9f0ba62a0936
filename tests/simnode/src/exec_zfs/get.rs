// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs get`. Sizes are those of this moment. Numbers are always exact, as with `-p`.

use std::collections::BTreeSet;

use crate::dataset_ops::is_mounted;
use crate::datasets::{Dataset, Datasets, is_below};
use crate::error::NodeError;
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::{Node, Zfs};
use crate::properties::{Sourced, is_known};
use crate::sizes::Measured;

const USAGE: &str = "usage: get [-rHp] [-d max] [-o field[,...]] [-s source[,...]] [-t type[,...]] \
                     property[,...] [filesystem|volume|snapshot] ...";
/// What zfs-fuse does not know.
const NEWER: [&str; 9] = [
    "encryption",
    "encryptionroot",
    "filesystem_limit",
    "keystatus",
    "logicalused",
    "receive_resume_token",
    "snapshot_limit",
    "sync",
    "written",
];
/// What `all` shows.
const ALL: &str = "type,creation,used,available,referenced,origin,mounted,quota,reservation,recordsize,\
                   mountpoint,compression,readonly,zoned,canmount,refquota,refreservation,guid,\
                   usedbysnapshots,volsize,userrefs,written";

pub(super) fn get(node: &Node, args: &[String]) -> Ended {
    let usage = |what: String| Failed(2, format!("{what}\n{USAGE}"));
    let p = Parsed::read(args, "rHp", "dost").map_err(usage)?;
    let [keys, names @ ..] = p.operands.as_slice() else {
        return Err(usage("missing property argument".to_string()));
    };
    let fuse = node.info().zfs == Zfs::Fuse;
    let all_keys = ALL.replace(' ', "");
    let keys: Vec<&str> =
        if keys == "all" { &all_keys } else { keys.as_str() }.split(',').collect();
    for key in &keys {
        if !is_known(key) || fuse && NEWER.contains(key) && p.operands[0] != "all" {
            return Err(usage(format!("bad property list: invalid property '{key}'")));
        }
    }
    let fields: Vec<&str> =
        p.value('o').unwrap_or("name,property,value,source").split(',').collect();
    let sources: Option<Vec<&str>> = p.value('s').map(|sources| sources.split(',').collect());
    let all = node.datasets()?;
    let measured = node.measured(&all);
    let mut text = String::new();
    if !p.has('H') {
        text = fields.join("\t").to_uppercase() + "\n";
    }
    for row in rows(&all, names, &p)? {
        let texts = if p.operands[0] == "all" { user_properties(&all, row) } else { Vec::new() };
        for key in keys.iter().copied().chain(texts.iter().map(String::as_str)) {
            let Sourced { value, source } = value(node, &all, &measured, row, key)?;
            let word = source.split(' ').next().unwrap_or_default();
            let word = if word == "-" { "none" } else { word };
            if sources.as_ref().is_some_and(|wanted| !wanted.contains(&word)) {
                continue;
            }
            let shown = fields.iter().map(|field| match *field {
                "name" => row.name.as_str(),
                "property" => key,
                "value" => &value,
                "source" => &source,
                _ => "-",
            });
            text += &(shown.collect::<Vec<_>>().join("\t") + "\n");
        }
    }
    Ok(text)
}

/// The user properties that a row has, of its own or of those above.
fn user_properties(all: &Datasets, row: &Dataset) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut name = row.name.as_str();
    loop {
        let set = all.get(name).map(|row| all.own_properties(&row.name)).unwrap_or_default();
        names.extend(set.into_keys().filter(|key| key.contains(':')));
        let Some((above, _)) = name.rsplit_once(['/', '@', '#']) else { break };
        name = above;
    }
    names.into_iter().collect()
}

/// The rows that are asked for: those named, and with `-r` or `-d` those below.
fn rows<'a>(all: &'a Datasets, names: &[String], p: &Parsed) -> Result<Vec<&'a Dataset>, Failed> {
    let depth = match p.value('d') {
        Some(text) => {
            let bad = |_| Failed(2, format!("({text}) is not a number"));
            text.parse::<usize>().map_err(bad)?
        }
        None if p.has('r') || names.is_empty() => usize::MAX,
        None => 0,
    };
    let kinds: Option<Vec<&str>> = p.value('t').map(|kinds| kinds.split(',').collect());
    let sorted = all.sorted();
    let wanted = |row: &&&Dataset| {
        kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|k| *k == "all" || *k == row.kind()))
    };
    let mut rows = Vec::new();
    for name in names {
        let top = all.get(name).ok_or_else(|| NodeError::NoSuchDataset(name.clone()))?;
        let inside = |row: &&&Dataset| {
            row.name == *name || is_below(&row.name, name) && row.depth() - top.depth() <= depth
        };
        rows.extend(sorted.iter().filter(inside).filter(wanted).copied());
    }
    if names.is_empty() {
        rows.extend(sorted.iter().filter(wanted).copied());
    }
    Ok(rows)
}

fn value(
    node: &Node,
    all: &Datasets,
    measured: &Measured<'_>,
    row: &Dataset,
    key: &str,
) -> Result<Sourced, NodeError> {
    let is_snapshot = row.name.contains(['@', '#']);
    let now = |value: String| Ok(Sourced { value, source: "-".to_string() });
    match key {
        "used" => now(measured.sizes(&row.name)?.used.to_string()),
        "referenced" | "refer" => now(measured.sizes(&row.name)?.referenced.to_string()),
        "written" => now(measured.sizes(&row.name)?.written.to_string()),
        "usedbysnapshots" if !is_snapshot => {
            now(measured.sizes(&row.name)?.usedbysnapshots.to_string())
        }
        "available" if !is_snapshot => now(measured.available(&row.name)?.to_string()),
        "mounted" if row.kind() == "filesystem" => {
            now(if is_mounted(row) { "yes" } else { "no" }.to_string())
        }
        "createtxg" => now(row.txg.to_string()),
        "encryption" | "encryptionroot" | "keystatus" => now(all.encryption(&row.name, key)),
        "receive_resume_token" => {
            now(node.resume_token(all, &row.name).unwrap_or_else(|| "-".to_string()))
        }
        _ => Ok(all.sourced(row, key)),
    }
}
