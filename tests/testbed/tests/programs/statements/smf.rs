// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 109 and 110: how SMF starts and stops vminfod.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rig::port::Port;
use serde_json::json;
use testbed::client::tools::fetch;
use testbed::process::{self, Child};
use tokio::time::Instant;

use super::super::common::{LATE, program};
use super::{lab, vms};

#[tokio::test(flavor = "multi_thread")] // S109
async fn the_start_method_succeeds_only_when_vminfod_answers() {
    let mut lab = lab().await;
    lab.end("vminfod", false).await.unwrap();
    // The method as it is deployed, with its places moved into a directory of the test.
    let deploy =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/smf/method/system-vminfod");
    let place = |name: &str| lab.dir().join(name).to_string_lossy().into_owned();
    let method = std::fs::read_to_string(deploy)
        .unwrap()
        .replace("/lib/svc/share/smf_include.sh", &place("smf_include.sh"))
        .replace("/usr/vm/sbin/vminfod", &place("vminfod"))
        .replace("/etc/vminfod.json", &place("vminfod.json"))
        .replace("/var/db/hub/booting", &place("booting"));
    std::fs::write(place("booting"), "").unwrap();
    let port = Port::local().unwrap();
    let url = port.url();
    let config = lab.node().vminfod_config_json(&port.address().to_string());
    std::fs::write(place("vminfod.json"), config.to_string()).unwrap();
    std::fs::write(place("smf_include.sh"), "SMF_EXIT_OK=0\nSMF_EXIT_ERR_FATAL=95\n").unwrap();
    std::fs::write(place("method"), method).unwrap();
    let vminfod = |text: &str| {
        std::fs::write(place("vminfod"), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(place("vminfod"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    let own = format!("'{}' @vminfod \"$@\"", program().display());
    let ping = format!("[ \"$1\" = ping ] && set -- ping --url {url}");

    // The testbed's vminfod ends with the process that started it, so a shell stays between it and
    // the method; its output must be nobody's to wait for.
    vminfod(&format!(
        "{ping}\nif [ \"$1\" = serve ]; then\nexec >/dev/null 2>&1\n{own} &\necho $! >{}\nwait $!\nelse\n{own}\nfi",
        place("pid")
    ));
    let sh = Path::new("/bin/sh");
    let started = process::run(sh, &[place("method"), "start".to_owned()], LATE).await.unwrap();
    assert_eq!(started.code, Some(0), "{}{}", started.stdout, started.stderr);
    assert_eq!(fetch(&url, "/ping").await.unwrap(), json!({"ping": "pong"}));
    assert!(!Path::new(&place("booting")).exists(), "this boot has not failed");
    let pid: i32 = std::fs::read_to_string(place("pid")).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();

    // One that cannot start is no success, and the method does not wait for ever.
    vminfod("[ \"$1\" = ping ] && exit 1\necho broken >&2\nexit 3");
    let failed = process::run(sh, &[place("method"), "start".to_owned()], LATE).await.unwrap();
    assert_eq!(failed.code, Some(3), "{}{}", failed.stdout, failed.stderr);
    lab.stop().await;
}

/// Every path below a directory, but logs.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            all.extend(paths(&path));
        }
        all.push(path);
    }
    all.retain(|path| path.extension().is_none_or(|kind| kind != "log"));
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")] // S110
async fn vminfod_ends_at_once_and_can_be_started_at_any_time() {
    let mut lab = lab().await;
    let all = vms(&lab).await;
    lab.end("vminfod", false).await.unwrap();
    let before = paths(lab.dir());
    let config = lab.config();
    let args = ["@vminfod", "serve", "--config", &config].map(str::to_owned);
    // Killed or told to stop, as soon as it says anything and later.
    for (said, signal) in [
        ("", rustix::process::Signal::KILL),
        ("", rustix::process::Signal::TERM),
        ("listening", rustix::process::Signal::KILL),
        ("listening", rustix::process::Signal::TERM),
    ] {
        let mut child = Child::spawn("vminfod", &program(), &args).unwrap();
        while child.line().await.is_some_and(|line| !line.contains(said)) {}
        let began = Instant::now();
        child.signal(signal);
        let status = tokio::time::timeout(LATE, child.wait()).await.unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        if signal == rustix::process::Signal::TERM {
            assert_eq!(status.code(), Some(0), "an orderly end");
        }
    }
    lab.start_vminfod().await.unwrap();
    assert_eq!(vms(&lab).await, all, "nothing was kept, and nothing is missed");
    lab.end("vminfod", false).await.unwrap();
    let sockets = lab.dir().join("cn/run");
    let own = |path: &&PathBuf| !path.starts_with(&sockets);
    let after = paths(lab.dir());
    assert_eq!(
        after.iter().filter(own).collect::<Vec<_>>(),
        before.iter().filter(own).collect::<Vec<_>>()
    );
    lab.stop().await;
}
