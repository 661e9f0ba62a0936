// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `conform vmload`: recorded nodes through the production loader, compared with the objects that
//! the deployed loader made of them.
//!
//! What is expected is read only when the load is done, so that nothing can lean on it.

mod compare;
#[cfg(test)]
mod fields;
pub(crate) mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value};
use vminfod::node::LoadError;
use vminfod::node::load::{self, Objects as Loaded};

use super::tally::Tally;
use recorded::{Recorded, json};

/// Compares the nodes at the path: one node, or a folder of nodes named `cn-…`. `--keys` compares
/// the order of keys too.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    match flags.iter().find(|flag| *flag != "--keys") {
        Some(flag) => bail!("unknown flag {flag}"),
        None => compare_nodes(path, !flags.is_empty()),
    }
}

fn compare_nodes(path: &Path, keys: bool) -> anyhow::Result<Tally> {
    let nodes = nodes(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut tally = Tally::default();
    for dir in nodes {
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
        let checked = runtime.block_on(check_node(&dir, &name, keys, &mut tally));
        if let Err(e) = checked {
            tally.case(&name, &[format!("{e:#}")]);
        }
    }
    Ok(tally)
}

fn nodes(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listing = || format!("cannot read {}", path.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).with_context(listing)? {
        entries.push(entry.with_context(listing)?.path());
    }
    if path.join("cmd").is_dir() && path.join("root").is_dir() {
        return Ok(vec![std::fs::canonicalize(path).with_context(listing)?]);
    }
    let named = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("cn-"));
    entries.retain(|p| named(p) && p.is_dir());
    entries.sort();
    if entries.is_empty() {
        bail!("{} is no node and holds none", path.display());
    }
    Ok(entries)
}

async fn check_node(dir: &Path, name: &str, keys: bool, tally: &mut Tally) -> anyhow::Result<()> {
    let recorded = Recorded::copy(dir)?;
    let loaded = load::objects(&recorded.ctx()).await;
    drop(recorded);

    let expected = dir.join("expected");
    let cases = cases(dir)?;
    if expected.join("vms.json").is_file() {
        let want = objects(&expected.join("vms.json"))?;
        compare_node(name, &want, loaded.as_ref(), &cases, keys, tally);
    } else if expected.join("error.json").is_file() {
        let faults = error_node(&expected, loaded.as_ref(), keys)?;
        tally.case(name, &faults);
    } else {
        bail!("expected: expected/vms.json or expected/error.json, got: neither");
    }
    Ok(())
}

fn cases(dir: &Path) -> anyhow::Result<Map<String, Value>> {
    let path = dir.join("cases.json");
    match path.is_file().then(|| json(&path)).transpose()? {
        Some(Value::Object(cases)) => Ok(cases),
        Some(_) => bail!("{} is no object", path.display()),
        None => Ok(Map::new()),
    }
}

type Objects = BTreeMap<String, Value>;

fn objects(path: &Path) -> anyhow::Result<Objects> {
    let Value::Array(list) = json(path)? else {
        bail!("{} is no array", path.display());
    };
    Ok(list.into_iter().map(|vm| (uuid(&vm), vm)).collect())
}

fn uuid(vm: &Value) -> String {
    vm.get("uuid").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What a loader made, as its readers get it: through its text.
fn made(node: &Loaded) -> Objects {
    let through_text = |vm| {
        let text = vm_model::js::to_ascii(vm);
        vm_model::js::parse(text.as_bytes()).unwrap_or(Value::Null)
    };
    node.vms.iter().map(through_text).map(|vm| (uuid(&vm), vm)).collect()
}

/// Every VM of an ordinary node is a case.
fn compare_node(
    name: &str,
    want: &Objects,
    loaded: Result<&Loaded, &LoadError>,
    cases: &Map<String, Value>,
    keys: bool,
    tally: &mut Tally,
) {
    let node = match loaded {
        Ok(node) => node,
        Err(e) => {
            if want.is_empty() {
                tally.case(name, &[format!("expected: a node without VMs, got: {e}")]);
            }
            for uuid in want.keys() {
                tally.case(&place(name, uuid, cases), &[format!("expected: an object, got: {e}")]);
            }
            return;
        }
    };
    let got = made(node);
    let names: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
    for uuid in &names {
        let faults = match (want.get(*uuid), got.get(*uuid)) {
            (Some(want), Some(got)) => compare::differences(want, got, keys),
            (Some(_), None) => {
                let broken = node.broken.iter().find(|(_, broken, _)| broken == *uuid);
                let got =
                    broken.map_or_else(|| "nothing".to_owned(), |(.., error)| error.to_string());
                vec![format!("expected: an object, got: {got}")]
            }
            (None, _) => vec!["expected: no object, got: one".to_owned()],
        };
        tally.case(&place(name, uuid, cases), &faults);
    }
    for (_, uuid, error) in node.broken.iter().filter(|(_, uuid, _)| !names.contains(uuid)) {
        let fault = format!("expected: nothing, got: {error}");
        tally.case(&place(name, uuid, cases), &[fault]);
    }
}

fn place(name: &str, uuid: &str, cases: &Map<String, Value>) -> String {
    match cases.get(uuid).and_then(Value::as_str) {
        Some(case) => format!("{name} {uuid} [{case}]"),
        None => format!("{name} {uuid}"),
    }
}

/// A node with a bad input: the others come and the bad ones are named, or nothing comes at all.
fn error_node(
    expected: &Path,
    loaded: Result<&Loaded, &LoadError>,
    keys: bool,
) -> anyhow::Result<Vec<String>> {
    let error = json(&expected.join("error.json"))?;
    let why = error.get("why").and_then(Value::as_str).unwrap_or("an error").to_owned();
    let others = expected.join("vms-without-broken.json");
    if !others.is_file() {
        return Ok(match loaded {
            Err(e) if !e.source_name().is_empty() => Vec::new(),
            Err(e) => vec![format!("expected: an error that names its source, got: {e}")],
            Ok(node) => {
                vec![format!("expected: an error ({why}), got: {} objects", node.vms.len())]
            }
        });
    }
    let node = match loaded {
        Ok(node) => node,
        Err(e) => return Ok(vec![format!("expected: the other VMs' objects ({why}), got: {e}")]),
    };
    let (want, got) = (objects(&others)?, made(node));
    let mut faults = Vec::new();
    let names: BTreeSet<&String> = want.keys().chain(got.keys()).collect();
    for uuid in names {
        match (want.get(uuid), got.get(uuid)) {
            (Some(want), Some(got)) => {
                let differences = compare::differences(want, got, keys);
                faults.extend(differences.iter().map(|d| format!("{uuid} {d}")));
            }
            (Some(_), None) => faults.push(format!("{uuid} expected: an object, got: nothing")),
            (None, _) => faults.push(format!("{uuid} expected: no object ({why}), got: one")),
        }
    }
    let broken =
        error.get("broken").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let want: BTreeSet<&str> = broken.iter().filter_map(Value::as_str).collect();
    let got: BTreeSet<&str> = node.broken.iter().map(|(_, uuid, _)| uuid.as_str()).collect();
    if want != got {
        faults.push(format!("expected: {want:?} reported broken ({why}), got: {got:?}"));
    }
    faults.extend(node.broken.iter().filter_map(|(.., error)| unnamed(error)));
    Ok(faults)
}

/// A report has to name its source, and the file where the source is one.
fn unnamed(error: &LoadError) -> Option<String> {
    use vm_model::origin::Origin::{Datasets, Kstat, Zoneadm};
    let is_command = matches!(error.origin, Datasets | Kstat | Zoneadm);
    (error.path.is_none() && !is_command)
        .then(|| format!("expected: an error that names its file, got: {error}"))
}

#[cfg(test)]
mod tests;
