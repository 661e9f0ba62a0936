// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The layers: which crate depends on which, and which module of a crate uses which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use testbed::process;

use super::super::common::LATE;
use super::paths::{self, Module};
use super::source::{self, Kind};

/// Each crate and the crates of the workspace that it may depend on (tests apart). The crates below
/// `tests/` may depend on all; a crate that is not listed here on none.
const CRATES: [(&str, &[&str]); 21] = [
    ("daemon", &["sdc-clients"]),
    ("store", &["sdc-clients"]),
    ("trust", &["daemon", "sdc-clients"]),
    ("console", &["daemon", "sdc-clients"]),
    ("vminfod", &["vm-model", "daemon", "sdc-clients", "console"]),
    ("net-agent", &["daemon", "sdc-clients"]),
    ("kvmd", &["daemon", "sdc-clients"]),
    ("vm-agent", &["vm-model", "daemon", "sdc-clients"]),
    ("migration-core", &["sdc-clients"]),
    ("migration-agent", &["migration-core", "trust", "daemon", "sdc-clients"]),
    ("migration-service", &["migration-core", "trust", "daemon", "sdc-clients", "store"]),
    ("sdc-migrate", &["migration-core", "trust", "daemon", "sdc-clients"]),
    ("volumes-core", &["vm-model"]),
    ("volapi", &["volumes-core", "vm-model", "trust", "daemon", "sdc-clients", "store"]),
    ("volumes-cli", &["volumes-core", "daemon", "sdc-clients"]),
    ("fleet-agent", &["daemon", "sdc-clients"]),
    ("fleet-cli", &["daemon", "sdc-clients"]),
    ("hub", &["vm-model", "daemon", "sdc-clients"]),
    ("boot-times", &["daemon", "sdc-clients"]),
    ("vm-model", &[]),
    ("sdc-clients", &[]),
];

/// Returns the folders of the workspace's crates that are there, with the text of their manifests.
pub fn crates() -> Vec<(String, String)> {
    let root = source::root();
    let manifests = source::files(&root, ".", "toml").into_iter().filter_map(|path| {
        let folder = path.strip_suffix("/Cargo.toml")?.trim_start_matches("./").to_owned();
        Some((folder, std::fs::read_to_string(root.join(path)).unwrap()))
    });
    manifests.filter(|(_, text)| !text.contains("[workspace]\n")).collect()
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let crates = crates();
    // The package, its library and its programs: a dependency may be called by each of them.
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("name = \""));
        lines.map(|name| name.trim_end_matches('"').to_owned()).collect()
    };
    let members: BTreeSet<String> = crates.iter().flat_map(|(_, text)| names(text)).collect();
    let mut faults = Vec::new();
    for (folder, text) in crates.iter().filter(|(folder, _)| !folder.starts_with("tests")) {
        let own = names(text).swap_remove(0);
        let allowed = CRATES.iter().find(|(it, _)| *it == own).map_or(&[][..], |(_, it)| it);
        let mut is_dependency = false;
        for (at, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                is_dependency = line.ends_with("dependencies]") && !line.contains("dev-");
            }
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if is_dependency && members.contains(used) && !allowed.contains(&used) {
                faults.push(format!("{folder}/Cargo.toml:{}: {own} → {used}", at + 1));
            }
        }
    }
    let root = source::root();
    for path in source::files(&root, "vminfod/src", "rs") {
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        let names =
            |part: &source::Part| part.kind == Kind::Code && part.text.contains("console::");
        let place = source::parts(&text).into_iter().find(names).map(|part| part.line);
        if let Some(line) = place.filter(|_| !path.ends_with("src/main.rs")) {
            faults.push(format!("{path}:{line}: console, which only main.rs may start"));
        }
    }
    assert!(faults.is_empty(), "crates that use one above them:\n{}", faults.join("\n"));
}

/// Returns the packages that a program links.
async fn linked(program: &str) -> BTreeSet<String> {
    let manifest = source::root().join("Cargo.toml").to_string_lossy().into_owned();
    let args = ["tree", "--offline", "--locked", "--manifest-path", &manifest];
    let args = [&args[..], &["--prefix", "none", "-e", "normal", "-p", program]].concat();
    let done = process::run(Path::new(env!("CARGO")), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{program}: {}", done.stderr);
    let linked = done.stdout.lines().filter_map(|line| line.split(' ').next());
    let linked: BTreeSet<String> = linked.map(str::to_owned).collect();
    assert!(linked.contains("daemon"), "{program}: {linked:?}");
    linked
}

#[tokio::test]
async fn only_programs_that_prove_who_they_are_link_tls() {
    // console-fleet, which reads the feed over TLS, is built apart.
    for program in ["vminfod", "net-agent", "vm-agent", "kvmd", "console", "hub"] {
        let linked = linked(program).await;
        for tls in ["trust", "rustls", "ring", "rcgen", FEED] {
            assert!(!linked.contains(tls), "{program} links {tls}");
        }
    }
    for program in ["migration-agent", "migration-service", "sdc-migrate", "volapi"] {
        let linked = linked(program).await;
        assert!(linked.contains("ring"), "{program}");
        for other in ["aws-lc-sys", "openssl-sys", "native-tls", "webpki-roots"] {
            assert!(!linked.contains(other), "{program} links {other}");
        }
    }
}

/// The packages of the programs that run on a compute node.
const ON_A_NODE: [&str; 8] = [
    "vminfod",
    "net-agent",
    "vm-agent",
    "kvmd",
    "migration-agent",
    "fleet-agent",
    "console",
    "hub",
];

#[tokio::test]
async fn no_program_of_a_compute_node_links_a_database() {
    for program in ON_A_NODE {
        let linked = linked(program).await;
        for database in ["store", "redb", "tokio-postgres"] {
            assert!(!linked.contains(database), "{program} links {database}");
        }
    }
}

/// What brings TLS and C, and the packages that may link it.
const FEED: &str = "async-nats";
const ON_THE_FEED: [&str; 2] = ["fleet-agent", "fleet-cli"];

#[test]
fn only_programs_of_the_feed_link_its_client() {
    let crates = crates();
    let folder = |(folder, text): &(String, String)| {
        let is_member =
            !folder.starts_with("tests") && !ON_THE_FEED.iter().any(|it| text.contains(it));
        is_member.then(|| (folder.clone(), text.clone()))
    };
    for (folder, text) in crates.iter().filter_map(folder) {
        let asks = text.lines().find(|line| {
            let is_optional = line.contains("optional = true");
            line.starts_with(FEED) && !is_optional
                || line.starts_with("sdc-clients") && line.contains("\"fleet\"")
        });
        assert_eq!(asks, None, "{folder} links {FEED}");
    }
    let clients = crates.iter().find(|(folder, _)| folder == "sdc-clients").unwrap();
    assert!(
        clients.1.contains("fleet = [\"dep:async-nats\"]") && !clients.1.contains("default = [")
    );
}

#[test]
fn modules_use_only_those_below_them() {
    let root = source::root();
    let libraries =
        crates().into_iter().filter(|(folder, _)| root.join(folder).join("src/lib.rs").exists());
    let faults: Vec<String> = libraries.flat_map(|(folder, _)| faults(&folder)).collect();
    assert!(
        faults.is_empty(),
        "{} imports against the layers\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Lists the imports of a crate that go against its layers.
fn faults(folder: &str) -> Vec<String> {
    let modules = paths::modules(folder);
    let known: BTreeMap<&[String], &Module> =
        modules.iter().map(|module| (module.path.as_slice(), module)).collect();
    let order = &known[&[][..]].children;
    let mut faults = Vec::new();
    // Siblings inside one module: who uses whom, with a place for each pair.
    let mut siblings: BTreeMap<(Vec<String>, String), BTreeMap<String, String>> = BTreeMap::new();
    for module in &modules {
        for (line, path) in &module.uses {
            let is_module = |len: &usize| known.contains_key(&path[..*len]);
            let target = &path[..(0..=path.len()).rev().find(is_module).unwrap_or(0)];
            let place =
                format!("{}:{line}: {} → {}", module.file, module.path.join("::"), path.join("::"));
            let from = &module.path;
            let common = from.iter().zip(target).take_while(|(a, b)| a == b).count();
            if common == from.len() || known[target].file == module.file {
                continue; // its own items, its children's, and what stands in the same file
            }
            if common == target.len() {
                faults.push(format!("{place} (an item of a file above it)"));
            } else if common == 0 {
                let at = |name: &String| order.iter().position(|it| it == name);
                if at(&target[0]) < at(&from[0]) {
                    faults.push(format!("{place} (listed above it in lib.rs)"));
                }
            } else {
                let pair = (from[..common].to_vec(), from[common].clone());
                siblings.entry(pair).or_default().entry(target[common].clone()).or_insert(place);
            }
        }
    }
    faults.extend(cycles(&siblings));
    faults
}

/// Lists the uses among siblings that lead back to where they come from.
fn cycles(siblings: &BTreeMap<(Vec<String>, String), BTreeMap<String, String>>) -> Vec<String> {
    let mut found = Vec::new();
    for ((parent, from), uses) in siblings {
        for (to, place) in uses {
            let (mut seen, mut open) = (BTreeSet::new(), vec![to.clone()]);
            while let Some(next) = open.pop() {
                if next == *from {
                    found.push(format!("{place} (which uses {from} in turn)"));
                    break;
                }
                if let Some(further) = siblings.get(&(parent.clone(), next.clone()))
                    && seen.insert(next)
                {
                    open.extend(further.keys().cloned());
                }
            }
        }
    }
    found
}
