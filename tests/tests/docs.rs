// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands that the documents show, taken out of their text and run as they stand there.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test; clippy sees tests only in #[test] itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::lab::seed::{self, Wrongs};
use testbed::lab::world::until;
use testbed::lab::{World, WorldOptions, vm_agent};
use testbed::process;

const LATE: Duration = Duration::from_secs(90);
const SCRIPT: Duration = Duration::from_secs(60);

/// A lab with everything running, as `testbed lab` makes it.
async fn lab(dir: &Path) -> (World, Wrongs, tokio::task::JoinHandle<()>) {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_testbed"));
    let options = WorldOptions { speed: 600, ..WorldOptions::new(dir.join("cn"), program) };
    let mut world = World::create(options).await.unwrap();
    world.start_vminfod().await.unwrap();
    let hub = world.hub().unwrap();
    let vms = hub.vms(true).await.unwrap();
    let wrongs = seed::fill(&world, &vms).unwrap();
    let vm_agent = tokio::spawn(vm_agent::follow(
        hub,
        world.vmapi.store().clone(),
        world.node().cn_uuid().to_owned(),
    ));
    world.start_agent().await.unwrap();
    (world, wrongs, vm_agent)
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The indented lines below a heading, up to the next heading of any depth.
fn commands(document: &str, heading: &str) -> String {
    let mut lines =
        document.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    assert!(lines.next().is_some(), "no heading {heading:?}");
    let found: Vec<&str> = lines
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    assert!(!found.is_empty(), "no commands below {heading:?}");
    found.join("\n")
}

/// Runs lines in one shell, as somebody would type them; what they printed.
async fn type_in(world: &World, lines: &str) -> String {
    let bin = world.node().dir().join("bin");
    let script = format!("set -euo pipefail\nexport PATH={}:$PATH\n{lines}\n", bin.display());
    let done = process::run(Path::new("/bin/bash"), &["-c", &script], SCRIPT).await.unwrap();
    assert_eq!(done.code, Some(0), "{lines}\n{}\n{}", done.stdout, done.stderr);
    done.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_a_node_works_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _, vm_agent) = lab(dir.path()).await;
    let guide = document("docs/operator.md");
    let printed = type_in(&world, &commands(&guide, "Look at a node")).await;
    assert!(printed.contains("\"numVms\""), "{printed}");
    type_in(&world, &commands(&guide, "Read the brake")).await;
    vm_agent.abort();
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_story_of_a_migration_by_hand_keeps_the_nics_word_by_word() {
    let dir = tempfile::tempdir().unwrap();
    let (mut world, wrongs, vm_agent) = lab(dir.path()).await;
    let passes = |status: &serde_json::Value| status["pass"].as_u64().unwrap_or_default();
    until("the first pass is over", LATE, || async { Ok(passes(&status(&world).await) > 0) })
        .await
        .unwrap();

    let guide = document("docs/operator.md");
    let story = commands(&guide, "Migrate a VM by hand without losing its NICs");
    let printed = type_in(&world, &format!("{story}\necho \"moved $MAC\"")).await;
    let mac = printed.lines().last().unwrap().strip_prefix("moved ").unwrap().parse().unwrap();
    assert!(wrongs.live.contains(&mac), "{mac} was a NIC of a live VM");
    assert!(printed.contains("moving to another node"), "the hold was listed:\n{printed}");

    // The agent has every occasion to do wrong now: a start of its own with a fresh list of NAPI's,
    // and fresh views of the node.
    world.end_agent(false).await.unwrap();
    world.start_agent().await.unwrap();
    until("a new agent has compared everything", LATE, || async {
        let now = status(&world).await;
        Ok(passes(&now) > 0 && now["resyncs"].as_u64() >= Some(2))
    })
    .await
    .unwrap();
    let nics = world.nics().await.unwrap();
    assert!(nics.iter().any(|nic| nic.mac == mac), "{mac} is gone");
    vm_agent.abort();
    world.stop().await.unwrap();
}

async fn status(world: &World) -> serde_json::Value {
    let http = sdc_clients::Http::new(&world.agent_url(), "testbed").unwrap();
    let call = sdc_clients::http::Call::new(http::Method::GET, &["status"]);
    http.execute(call).await.unwrap().json("the status").unwrap()
}
