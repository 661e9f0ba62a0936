// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets of a VM, as a plan takes them.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::Cause;
use super::run::{Property, Zfs, ZfsError};
use migration_core::sync_plan::{Row, Side, Token};

/// What there is of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// For the plan of a sync. The GUID of a token is 0: only the sender can resolve it.
    pub side: Side,
    /// Bytes that each dataset refers to.
    pub referenced: BTreeMap<String, u64>,
    /// The names of the snapshots that datasets are clones of, by dataset.
    pub origins: BTreeMap<String, String>,
}

impl Zfs {
    /// Lists these datasets with what is below them, and these snapshots of images; what is not there is left
    /// out.
    pub async fn list(&self, roots: &[String], origins: &[String]) -> Result<Listed, ZfsError> {
        let mut wanted = vec!["type", "guid", "createtxg", "origin", "referenced", "userrefs"];
        if self.can().await?.resume {
            wanted.push("receive_resume_token");
        }
        let mut listed = Listed::default();
        for root in roots {
            match self.get(&wanted, std::slice::from_ref(root), true).await {
                Ok(rows) => add(&mut listed, &rows)?,
                Err(error) if error.cause() == Cause::Absent => {}
                Err(error) => return Err(error),
            }
        }
        let mut guids = BTreeMap::new();
        let named: BTreeSet<String> = listed.origins.values().chain(origins).cloned().collect();
        for (name, guid) in self.each("guid", &Vec::from_iter(named)).await? {
            guids.insert(name, number("get", &guid)?);
        }
        let known = |(dataset, name): (&String, &String)| {
            guids.get(name).map(|guid| (dataset.clone(), *guid))
        };
        listed.side.origins = listed.origins.iter().filter_map(known).collect();
        for (name, guid) in guids {
            if let Some((dataset, snapshot)) = name.split_once('@')
                && !listed.side.snapshots.iter().any(|row| row.guid == guid)
            {
                let (dataset, name) = (dataset.to_owned(), snapshot.to_owned());
                let row = Row { dataset, name, guid, ..Row::default() };
                listed.side.snapshots.push(row);
            }
        }
        Ok(listed)
    }
}

fn number(verb: &'static str, text: &str) -> Result<u64, ZfsError> {
    text.parse().map_err(|_| ZfsError::Odd { verb, line: text.to_owned() })
}

fn add(listed: &mut Listed, rows: &[Property]) -> Result<(), ZfsError> {
    let mut by_name: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for row in rows {
        by_name.entry(&row.of).or_default().insert(&row.name, &row.value);
    }
    let (mut snapshots, mut bookmarks) = (Vec::new(), Vec::new());
    for (name, of) in by_name {
        let get = |key: &str| of.get(key).copied().unwrap_or("-");
        if let Some((dataset, rest)) = name.split_once(['@', '#']) {
            let guid = number("get", get("guid"))?;
            let txg = number("get", get("createtxg"))?;
            let (dataset, rest) = (dataset.to_owned(), rest.to_owned());
            let row = Row { dataset, name: rest, guid, txg, number: None };
            if !matches!(get("userrefs"), "0" | "-") {
                listed.side.held.push(row.full_name());
            }
            if name.contains('@') { &mut snapshots } else { &mut bookmarks }.push(row);
            continue;
        }
        listed.side.datasets.push(name.to_owned());
        listed.referenced.insert(name.to_owned(), number("get", get("referenced"))?);
        let origin = get("origin");
        if origin != "-" && !origin.is_empty() {
            listed.origins.insert(name.to_owned(), origin.to_owned());
        }
        let text = get("receive_resume_token");
        if text != "-" && !text.is_empty() {
            let (dataset, text) = (name.to_owned(), text.to_owned());
            listed.side.tokens.push(Token { dataset, text, guid: 0 });
        }
    }
    for (mut found, side) in
        [(snapshots, &mut listed.side.snapshots), (bookmarks, &mut listed.side.bookmarks)]
    {
        found.sort_by_key(|row: &Row| row.txg);
        side.append(&mut found);
    }
    Ok(())
}
