// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that was declared dead comes back by a boot: what its package has put there keeps the copy down that was
//! replaced meanwhile; without the package two copies run.

use std::path::Path;

use sdc_clients::migrations::Options;
use simnode::Node;
use testbed::moving::judge::{Copy, Judge};
use testbed::moving::subject::VM;
use testbed::process;

use super::super::LATE;
use super::super::packed::{STAMP, file, packed, stand_ins};
use super::super::table::{AGENTS, packages};
use super::namespace;
use crate::cut_off::{done, synced};

fn copy(node: &Node) -> Copy {
    Judge::new(VM).copy(node).unwrap()
}

/// Packs migration-agent as it was built, beside stand-ins; returns its file. None where it was not built.
fn built(dir: &Path) -> Option<String> {
    let program = crate::common::program().with_file_name("migration-agent");
    if !program.exists() {
        return None;
    }
    let programs = dir.join("programs");
    stand_ins(&programs);
    std::fs::copy(program, programs.join("migration-agent")).unwrap();
    packed(&dir.join("out"), &programs, STAMP);
    let package = packages().into_iter().find(|it| it.name == "migration-agent").unwrap();
    Some(file(&dir.join("out"), &package, STAMP).to_string_lossy().into_owned())
}

async fn apm(node: &Node, args: &[&str]) {
    let path = format!("PATH={}:/usr/bin:/bin", node.dir().join("platform").display());
    let root = format!("HUB_ROOT={}", node.root().display());
    let apm = node.path(&format!("{AGENTS}/bin/apm")).to_string_lossy().into_owned();
    let args = [&[&*path, &root, "NO_SAPI=true", &apm], args].concat();
    let done = process::run(Path::new("/usr/bin/env"), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// Boots the node, with the methods of our packages as they are. Returns what they said, and whether two copies ever
/// ran.
async fn boots(node: &Node, other: &Node) -> (String, bool) {
    let (mut said, mut two) = (String::new(), false);
    let mut boot = node.begin_boot().unwrap();
    while let Some(start) = node.next_start(&mut boot).unwrap() {
        let mut well = true;
        if start.exec.starts_with("/opt/smartdc/") {
            let ended = namespace::run(node, &[], false, "", &start.exec).await.unwrap();
            said.push_str(&format!("{}: {}{}\n", start.exec, ended.stdout, ended.stderr));
            well = ended.code == Some(0);
        }
        node.ended(&start, well).unwrap();
        two |= copy(node).running && copy(other).running;
    }
    (said, two)
}

/// The story: whether two copies ever ran, and what the methods said. The package may be gone before the node dies.
async fn comes_back(package: &str, is_installed: bool) -> (String, bool) {
    let (mut lab, other, client, from) = synced("1s").await;
    let node = lab.node().clone();
    namespace::furnish(&node);
    node.lay_agents("127.0.0.1:1").unwrap();
    apm(&node, &["install", package]).await;
    // What config-agent would write: the node's own places are seen at the same paths there.
    let config = std::fs::read(node.dir().join("migration-agent.json")).unwrap();
    node.put(&format!("{AGENTS}/etc/migration-agent.config.json"), &config, 0o644).unwrap();
    if !is_installed {
        apm(&node, &["uninstall", "migration-agent"]).await;
    }
    assert!(copy(&node).running && copy(&node).autoboot);

    lab.goes_down().await.unwrap();
    let word = Options { source_dead: Some(from), really: true, ..Options::default() };
    done(&client, "switch", &word, "successful").await;
    assert!(copy(other.node()).running && !copy(&node).running);

    let (mut said, mut two) = (String::new(), false);
    // The second time as a node that hangs and is reset.
    for _ in 0..2 {
        let booted = boots(&node, other.node()).await;
        said.push_str(&booted.0);
        two |= booted.1;
        assert!(copy(other.node()).running, "{said}");
    }
    other.stop().await.unwrap();
    lab.stop().await;
    (said, two)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute, and needs the built programs: `.ci/run` has it in its lane of the installed"]
async fn a_node_declared_dead_boots_no_second_copy_where_our_package_is_installed() {
    if let Some(why) = namespace::missing().await {
        eprintln!("skipped: no namespace can be made here: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let Some(package) = tokio::task::spawn_blocking(move || built(&path)).await.unwrap() else {
        eprintln!(
            "skipped: migration-agent is not built (cargo build --workspace --bins builds it)"
        );
        return;
    };
    let (said, two) = comes_back(&package, true).await;
    assert!(!two && said.contains(VM), "{said}");
    let (said, two) = comes_back(&package, false).await;
    assert!(two, "nothing else keeps the copy down: {said}");
}
