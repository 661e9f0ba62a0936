// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What people have set on datasets. The names are read first; what a tenant may have written is read apart.

use std::collections::{BTreeMap, BTreeSet};

use super::run::{Zfs, ZfsError, args};
use migration_core::properties::{self, Carried};
use migration_core::protocol::Properties;

/// Asks what is set. Received values count: they were set on the other node.
const NAMES: [&str; 7] = ["get", "-Hp", "-s", "local,received", "-o", "name,property", "all"];

/// What is set on datasets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The properties that are copied.
    pub carried: Properties,
    /// Dataset and name of what a stream with properties brings, and nothing else does.
    pub left: BTreeSet<(String, String)>,
}

impl Zfs {
    /// Returns what people have set on a dataset and those below it.
    pub async fn set_by_people(&self, dataset: &str) -> Result<Set, ZfsError> {
        let mut found = Set::default();
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut of_zone = Vec::new();
        let (mut of_words, mut words) = (BTreeSet::new(), BTreeSet::new());
        let zoned = self.zoned(dataset).await?;
        for (of, name) in self.names_below(dataset).await? {
            match properties::judge(&name, zoned.contains(&of)) {
                Carried::Word => {
                    words.insert(name.clone());
                    of_words.insert((of, name));
                }
                Carried::Text => texts.entry(of).or_default().push(name),
                Carried::OfZone => of_zone.push((of, name)),
                Carried::No if properties::is_missed(&name) => drop(found.left.insert((of, name))),
                Carried::No => {}
            }
        }
        // People write where it is mounted: each is read alone.
        for (of, name) in of_zone {
            match self.text(&name, &of).await?.as_deref().and_then(properties::plain) {
                Some(value) => drop(found.carried.entry(of).or_default().insert(name, value)),
                None => drop(found.left.insert((of, name))),
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if !words.is_empty() {
            for row in self.tree(&words, dataset).await? {
                let key = (row.of, row.name);
                if of_words.contains(&key) {
                    let (of, name) = key;
                    found.carried.entry(of).or_default().insert(name, row.value);
                }
            }
        }
        for (of, names) in texts {
            for (name, value) in self.texts(&of, names).await? {
                match properties::plain(&value) {
                    Some(value) => {
                        found.carried.entry(of.clone()).or_default().insert(name, value);
                    }
                    None => drop(found.left.insert((of.clone(), name))),
                }
            }
        }
        Ok(found)
    }

    /// The datasets of a tree that are a zone's.
    pub async fn zoned(&self, dataset: &str) -> Result<BTreeSet<String>, ZfsError> {
        let all = self.whether_zoned(dataset).await?.into_iter();
        Ok(all.filter_map(|(name, is_zoned)| is_zoned.then_some(name)).collect())
    }

    /// The datasets of a tree, and whether each is a zone's.
    pub async fn whether_zoned(&self, dataset: &str) -> Result<BTreeMap<String, bool>, ZfsError> {
        let rows = self.tree(&["zoned"], dataset).await?.into_iter();
        Ok(rows.map(|row| (row.of, row.value == "on")).collect())
    }

    /// The names of what is set on one dataset.
    pub async fn names_set(&self, dataset: &str) -> Result<Vec<String>, ZfsError> {
        let words = args(&NAMES).into_iter().chain([dataset.to_owned()]).collect();
        let names = pairs(dataset, &self.bytes(words).await?).into_iter();
        Ok(names.map(|(_, name)| name).collect())
    }

    /// The names of what is set on a dataset and those below it, with the datasets.
    async fn names_below(&self, dataset: &str) -> Result<Vec<(String, String)>, ZfsError> {
        Ok(pairs(dataset, &self.over_tree(&args(&NAMES), dataset).await?))
    }

    /// The values of user properties: all at once where each is one line, or else one by one.
    async fn texts(
        &self,
        of: &str,
        names: Vec<String>,
    ) -> Result<Vec<(String, Vec<u8>)>, ZfsError> {
        let all = names.join(",");
        let shape = args(&["get", "-Hp", "-o", "property,value", &all, of]);
        let printed = self.bytes(shape).await?;
        if let Some(values) = properties::in_lines(&printed, &names) {
            let values = values.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
            return Ok(names.into_iter().zip(values).collect());
        }
        let mut found = Vec::new();
        for name in names {
            if let Some(value) = self.text(&name, of).await? {
                found.push((name, value));
            }
        }
        Ok(found)
    }
}

/// The names of what is set, with the datasets. Neither can have a tab or a line end: what is not such a pair names no
/// property, and stops no sync either.
fn pairs(dataset: &str, printed: &[u8]) -> Vec<(String, String)> {
    let printed = String::from_utf8_lossy(printed);
    let pair = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
        [of, name] => Some((of.to_owned(), name.to_owned())),
        _ => None,
    };
    let rows: Vec<_> = printed.lines().filter_map(pair).collect();
    let odd = printed.lines().count() - rows.len();
    if odd > 0 {
        tracing::warn!(dataset, odd, "ignored lines of `zfs get` that name no property");
    }
    rows
}
