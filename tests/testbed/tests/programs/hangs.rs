// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A file system that hangs under one VM: a FUSE mount that nothing serves. Needs root and
//! /dev/fuse.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::vminfod::Watcher;
use serde_json::{Value, json};
use testbed::process::Child;

use super::common::{Lab, run, see_modified, status, until};

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

/// Every one of these VMs is changed, and each change is told.
async fn changes_arrive(lab: &Lab, watcher: &mut Watcher, vms: &[String], alias: &str) {
    for vm in vms {
        lab.verbs().set_field(vm, "alias", json!(alias)).await.unwrap();
        see_modified(watcher, vm, |now| now["alias"] == alias).await;
    }
}

/// Waits until the status page says so.
async fn until_status(lab: &Lab, what: &str, holds: impl Fn(&Value) -> bool) {
    until(what, async || holds(&status(&lab.vminfod_url()).await)).await;
}

fn complaint(status: &Value, vm: &str) -> String {
    status["errors"][vm].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_hangs_for_ever_costs_its_vm_alone_and_one_thread() {
    let settings = json!({
        "deadlines": { "files": "1s" }, "sweep": "200ms", "retry": { "min": "100ms", "max": "500ms" },
        "refresh": { "min": "500ms", "max": "600ms" },
    });
    let settings = settings.as_object().unwrap().clone();
    let mut lab = Lab::start(|options| options.vminfod.extend(settings)).await;
    let mut watcher = lab.watcher().await;
    let zones = lab.node().zones().unwrap();
    let zones: Vec<_> = zones.iter().collect();
    let (victim, others) = zones.split_first().unwrap();
    let vm = victim.zonename.clone();
    let others: Vec<String> = others.iter().map(|zone| zone.zonename.clone()).collect();

    let config = lab.node().path(&victim.zonepath).join("config");
    let Some(hang) = Hang::over(&config).await else { return };
    changes_arrive(&lab, &mut watcher, &others, "at once").await;
    let says = |status: &Value| complaint(status, &vm).contains("still does not answer");
    until_status(&lab, "the VM is stale and the status says why", says).await;
    changes_arrive(&lab, &mut watcher, &others, "later").await;

    // Sweeps, refreshes and retries come and go, and no more threads are lost.
    let counted = |status: &Value, key: &str| status["counters"][key].as_u64();
    let before = status(&lab.vminfod_url()).await;
    assert!(counted(&before, "refreshes").is_some() && counted(&before, "sweeps").is_some());
    let went_on = |status: &Value| {
        counted(status, "refreshes") > counted(&before, "refreshes").map(|n| n + 4)
            && counted(status, "sweeps") > counted(&before, "sweeps").map(|n| n + 9)
    };
    until_status(&lab, "sweeps and refreshes end", went_on).await;
    assert_eq!(stuck(lab.pid("vminfod").unwrap()), 1);
    assert!(lab.client().vm(&vm, false).await.is_ok(), "its last object stays");
    assert!(lab.client().vm(&vm, true).await.is_err(), "a fresh one cannot be had");
    assert!(lab.client().vm(&others[0], true).await.is_ok());

    // A daemon can be stopped and started over it, and without one a command reads for itself.
    lab.end("vminfod", false).await.unwrap();
    let listed = run(&["@vminfod", "list", "--config", &lab.config()]).await;
    assert_eq!(listed.stdout.lines().count(), others.len() + 1, "{listed:?}");
    lab.start_vminfod().await.unwrap();
    let shown = lab.client().vms(false).await.unwrap().vms;
    assert_eq!(shown.len(), others.len());
    assert!(complaint(&status(&lab.vminfod_url()).await, &vm).contains("answer"));

    // And when it answers, everything is as if nothing had been.
    changes_arrive(&lab, &mut watcher, &others, "at last").await;
    hang.answer().await;
    until_status(&lab, "nothing fails any more", |status| status["errors"] == json!({})).await;
    changes_arrive(&lab, &mut watcher, std::slice::from_ref(&vm), "mine too").await;
    assert_eq!(stuck(lab.pid("vminfod").unwrap()), 0);
    lab.stop().await;
}
