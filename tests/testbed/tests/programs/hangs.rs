// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A file system that hangs under one VM: a FUSE mount that nothing serves. Needs root and
//! /dev/fuse.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::vminfod::{WatchEvent, Watcher, key_of, watch};
use serde_json::{Value, json};
use simnode::{Verbs, Wait};
use testbed::lab::{World, WorldOptions};
use testbed::process::{Child, run};

/// Longer than anything takes that goes well.
const LIMIT: Duration = Duration::from_secs(60);
/// Holds the device open, so that the mount lives as long as this script does.
const SERVE_NOBODY: &str = r#"exec 3<>/dev/fuse
mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hangs "$0" || exit 1
echo mounted; exec sleep 600"#;

/// A directory under which everything hangs.
struct Hang {
    at: PathBuf,
    script: Option<Child>,
}

impl Hang {
    /// `None` where such a mount cannot be made.
    async fn over(at: &Path) -> Option<Self> {
        let args = ["-c", SERVE_NOBODY, at.to_str().unwrap()];
        let mut script = Child::spawn("hang", Path::new("/bin/sh"), &args).unwrap();
        match script.line().await {
            Some(line) if line == "mounted" => {
                Some(Self { at: at.to_owned(), script: Some(script) })
            }
            why => {
                eprintln!("skipped: nothing that hangs can be mounted here: {why:?}");
                None
            }
        }
    }

    /// Whoever hangs there is let go, and what was there before is there again.
    async fn answer(mut self) {
        unmount(&self.at);
        self.script.take().unwrap().stop(Duration::ZERO).await.unwrap();
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        if self.script.is_some() {
            unmount(&self.at);
        }
    }
}

#[allow(clippy::disallowed_methods)] // also while a test panics, where nothing can be awaited
fn unmount(at: &Path) {
    let unmounted = std::process::Command::new("umount").arg("-l").arg(at).status();
    assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", at.display());
}

/// Threads of the process that wait for a file system in the kernel.
fn stuck(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks
        .filter(|task| {
            let stack = std::fs::read_to_string(task.path().join("stack")).unwrap_or_default();
            stack.contains("fuse")
        })
        .count()
}

async fn see(watcher: &mut Watcher, what: &str, mut wanted: impl FnMut(&WatchEvent) -> bool) {
    let seen = async { while !wanted(&watcher.next().await) {} };
    tokio::time::timeout(LIMIT, seen).await.unwrap_or_else(|_| panic!("{what} never came"));
}

/// Every one of these VMs is changed, and each change is told.
async fn changes_arrive(world: &World, watcher: &mut Watcher, vms: &[String], alias: &str) {
    let verbs = Verbs::new(world.node(), Wait::none());
    for vm in vms {
        verbs.set_field(vm, "alias", json!(alias)).await.unwrap();
        see(watcher, alias, |event| {
            matches!(event, WatchEvent::Modified { vm: now, .. }
                if key_of(now) == Some(vm) && now["alias"] == alias)
        })
        .await;
    }
}

async fn status(world: &World) -> Value {
    world.hub().unwrap().status().await.unwrap()
}

/// Waits until the status page says so.
async fn until(world: &World, what: &str, holds: impl Fn(&Value) -> bool) {
    let waits = async {
        while !holds(&status(world).await) {
            tokio::task::yield_now().await;
        }
    };
    let held = tokio::time::timeout(LIMIT, waits).await;
    assert!(held.is_ok(), "never: {what}: {}", status(world).await);
}

fn complaint(status: &Value, vm: &str) -> String {
    status["errors"][vm].to_string()
}

async fn world(dir: &Path) -> World {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_testbed"));
    let mut options = WorldOptions { vms: 12, ..WorldOptions::new(dir.join("cn"), program) };
    let settings = json!({
        "deadlines": { "files": "1s" }, "sweep": "200ms", "retry": { "min": "100ms", "max": "500ms" },
        "refresh": { "min": "500ms", "max": "600ms" },
    });
    options.vminfod.extend(settings.as_object().unwrap().clone());
    let mut world = World::create(options).await.unwrap();
    world.start_vminfod().await.unwrap();
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_hangs_for_ever_costs_its_vm_alone_and_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = world(dir.path()).await;
    let mut watcher = watch(&world.hub().unwrap(), Jitter::from_seed(1));
    see(&mut watcher, "the first list", |event| matches!(event, WatchEvent::Synced(_))).await;
    let zones = world.node().zones().unwrap();
    let zones: Vec<_> = zones.iter().collect();
    let (victim, others) = zones.split_first().unwrap();
    let vm = victim.zonename.clone();
    let others: Vec<String> = others.iter().map(|zone| zone.zonename.clone()).collect();

    let config = world.node().path(&victim.zonepath).join("config");
    let Some(hang) = Hang::over(&config).await else { return };
    changes_arrive(&world, &mut watcher, &others, "at once").await;
    let says = |status: &Value| complaint(status, &vm).contains("still does not answer");
    until(&world, "the VM is stale and the status says why", says).await;
    changes_arrive(&world, &mut watcher, &others, "later").await;

    // Sweeps, refreshes and retries come and go, and no more threads are lost.
    let counted = |status: &Value, key: &str| status["counters"][key].as_u64();
    let before = status(&world).await;
    assert!(counted(&before, "refreshes").is_some() && counted(&before, "sweeps").is_some());
    let went_on = |status: &Value| {
        counted(status, "refreshes") > counted(&before, "refreshes").map(|n| n + 4)
            && counted(status, "sweeps") > counted(&before, "sweeps").map(|n| n + 9)
    };
    until(&world, "sweeps and refreshes end", went_on).await;
    assert_eq!(stuck(world.vminfod_pid().unwrap()), 1);
    assert!(world.hub().unwrap().vm(&vm, false).await.is_ok(), "its last object stays");
    assert!(world.hub().unwrap().vm(&vm, true).await.is_err(), "a fresh one cannot be had");
    assert!(world.hub().unwrap().vm(&others[0], true).await.is_ok());

    // A daemon can be stopped and started over it, and without one a command reads for itself.
    world.end_vminfod(false).await.unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_testbed"));
    let settings = dir.path().join("cn/vminfod.json");
    let args = ["@vminfod", "list", "--config", settings.to_str().unwrap()];
    let listed = run(&program, &args, LIMIT).await.unwrap();
    assert_eq!(listed.stdout.lines().count(), others.len() + 1, "{listed:?}");
    world.start_vminfod().await.unwrap();
    let shown = world.hub().unwrap().vms(false).await.unwrap().vms;
    assert_eq!(shown.len(), others.len());
    assert!(complaint(&status(&world).await, &vm).contains("answer"));

    // And when it answers, everything is as if nothing had been.
    changes_arrive(&world, &mut watcher, &others, "at last").await;
    hang.answer().await;
    until(&world, "nothing fails any more", |status| status["errors"] == json!({})).await;
    changes_arrive(&world, &mut watcher, std::slice::from_ref(&vm), "mine too").await;
    assert_eq!(stuck(world.vminfod_pid().unwrap()), 0);
    world.stop().await.unwrap();
}
