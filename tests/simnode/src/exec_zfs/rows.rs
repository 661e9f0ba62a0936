// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets that `zfs list` and `zfs get` are asked for: those named, and with `-r` or `-d` those
//! below, in zfs's order. One that is named twice comes twice; one that cannot be opened is complained
//! about, and the others are printed.

use crate::datasets::{Dataset, Datasets, is_below};
use crate::error::NodeError;
use crate::getopt::{Failed, Parsed, Said};

/// The rows, and what was said of those that are none.
pub(super) struct Chosen<'a> {
    pub(super) rows: Vec<&'a Dataset>,
    pub(super) said: Said,
}

/// Chooses the rows of these kinds; of every kind if none is given.
pub(super) fn chosen<'a>(
    all: &'a Datasets,
    names: &[String],
    p: &Parsed,
    kinds: Option<&str>,
) -> Result<Chosen<'a>, Failed> {
    let depth = match p.value('d') {
        Some(text) => {
            let bad = |_| Failed(2, format!("({text}) is not a number"));
            Some(text.parse::<usize>().map_err(bad)?)
        }
        None => (p.has('r') || names.is_empty()).then_some(usize::MAX),
    };
    let kinds: Option<Vec<&str>> = kinds.map(|kinds| kinds.split(',').collect());
    let has = |kind: &str| {
        let is_it =
            |one: &&str| *one == "all" || *one == kind || kind == "snapshot" && *one == "snap";
        kinds.as_ref().is_none_or(|kinds| kinds.iter().any(is_it))
    };
    // With a depth a filesystem is where the search begins, wanted or not.
    let may_be_named = |kind: &str| match kind {
        "filesystem" => depth.is_some() || has(kind),
        "volume" => depth.is_some() && has("snapshot") || has(kind),
        _ => has(kind),
    };
    let (mut rows, mut said) = (Vec::new(), Said::default());
    for name in names {
        match all.get(name) {
            None => said.complain(&NodeError::NoSuchDataset(name.clone()).to_string()),
            Some(top) if !may_be_named(top.kind()) => said.complain(&format!(
                "cannot open '{name}': operation not applicable to datasets of this type"
            )),
            Some(top) => {
                rows.push(top);
                let near =
                    |row: &&Dataset| depth.is_some_and(|depth| row.depth() - top.depth() <= depth);
                if depth.is_some_and(|depth| depth > 0) {
                    let below = all.rows.values().filter(|row| is_below(&row.name, name));
                    rows.extend(below.filter(near));
                }
            }
        }
    }
    if names.is_empty() {
        let near = |row: &&Dataset| depth.is_none_or(|depth| row.depth() <= depth);
        rows.extend(all.rows.values().filter(near));
    }
    rows.retain(|row| has(row.kind()));
    rows.sort_by(|one, other| one.listed(other));
    Ok(Chosen { rows, said })
}
