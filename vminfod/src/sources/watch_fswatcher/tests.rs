// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::*;
use crate::load::scripted::executable;
use crate::sources::inbox::Inbox;

/// A node's directory with a helper that answers for what exists and prints what it is told to.
struct Scene {
    dir: tempfile::TempDir,
    inbox: Arc<Inbox>,
    zones: watch::Sender<Zones>,
    up: Arc<AtomicBool>,
    inject: std::fs::File,
}

const HELPER: &str = r#"#!/bin/sh
[ "$1 $2" = "-r -j" ] || exit 2
echo '{"type":"ready","time":[1,1]}'
cat DIR/inject &
while read key verb path; do
    echo "$verb $path" >> DIR/log
    if [ -e "$path" ]; then result=SUCCESS code=0; else result=FAIL code=1; fi
    printf '{"type":"response","time":[1,2],"key":%s,"code":%s,"pathname":"%s","message":"","result":"%s"}\n' "$key" $code "$path" $result
done
"#;

impl Scene {
    fn new() -> (Self, Fswatcher, Order) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for sub in ["etc/zones", "tmp", "zones/z/config"] {
            std::fs::create_dir_all(at(sub)).unwrap();
        }
        for file in ["etc/zones/z.xml", "etc/zones/index", "zones/z/config/tags.json"] {
            std::fs::write(at(file), "").unwrap();
        }
        let program = at("fswatcher");
        executable(&program, &HELPER.replace("DIR", dir.path().to_str().unwrap()));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("inject"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        // Open for both, so that opening waits for nobody.
        let inject = std::fs::OpenOptions::new().read(true).write(true).open(at("inject")).unwrap();
        let (zones, seen) = watch::channel(Zones::default());
        let (inbox, up) = (Arc::new(Inbox::default()), Arc::new(AtomicBool::new(false)));
        let health = {
            let up = Arc::clone(&up);
            Arc::new(move |is_up| up.store(is_up, Ordering::SeqCst))
        };
        let order =
            Order { root: Root::new(dir.path()), zones: seen, inbox: Arc::clone(&inbox), health };
        (Self { dir, inbox, zones, up, inject }, Fswatcher { program }, order)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn event(&mut self, name: &str, changes: &str, last: bool) {
        let path = self.path(name);
        let line = format!(
            "{{\"type\":\"event\",\"time\":[1,3],\"changes\":[\"{changes}\"],\"pathname\":\"{path}\",\"revents\":2,\"final\":{last}}}\n"
        );
        self.inject.write_all(line.as_bytes()).unwrap();
    }

    /// Waits until these files of zone z were signalled.
    async fn hears(&self, wanted: &[ZoneFile]) {
        let mut missing: BTreeSet<ZoneFile> = wanted.iter().copied().collect();
        let work = async {
            while !missing.is_empty() {
                for (zone, file) in self.inbox.take().files {
                    assert_eq!(zone, "z");
                    missing.remove(&file);
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), work).await.expect("no such signal came");
    }

    /// Waits until the helper was asked for this.
    async fn asked(&self, line: &str, times: usize) {
        let line = line.replace("DIR", self.dir.path().to_str().unwrap());
        let work = async {
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            while log().lines().filter(|one| *one == line).count() < times {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), work)
            .await
            .unwrap_or_else(|_| panic!("never asked: {line}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s074_files_are_watched_missed_and_watched_again() {
    let (mut scene, watcher, order) = Scene::new();
    let follower = tokio::spawn(watcher.follow(order));
    while !scene.up.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    scene.zones.send_replace(Arc::new(BTreeMap::from([("z".into(), "/zones/z".into())])));
    // A zone that is new is looked at once.
    scene.hears(&[ZoneFile::Xml, ZoneFile::Config, ZoneFile::LastExited]).await;
    scene.asked("WATCH DIR/zones/z/config/tags.json", 1).await;
    scene.event("zones/z/config/tags.json", "FILE_RENAME_TO", false);
    scene.hears(&[ZoneFile::Config]).await;
    // Moved over from another file system: gone for the helper, and there.
    scene.event("etc/zones/z.xml", "FILE_DELETE", true);
    scene.hears(&[ZoneFile::Xml]).await;
    scene.asked("WATCH DIR/etc/zones/z.xml", 2).await;
    // One that was never there is asked for until it is.
    scene.asked("WATCH DIR/zones/z/lastexited", 3).await;
    std::fs::write(scene.path("zones/z/lastexited"), "1 0").unwrap();
    scene.hears(&[ZoneFile::LastExited]).await;
    scene.zones.send_replace(Zones::default());
    scene.asked("UNWATCH DIR/etc/zones/z.xml", 1).await;
    follower.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_talks_garbage_or_ends_is_an_end_with_a_reason() {
    for (line, reason) in [
        ("garbage\n", "expected value"),
        (
            "{\"type\":\"error\",\"time\":[1,1],\"key\":0,\"code\":4,\"message\":\"re-association failed\"}\n",
            "re-association failed",
        ),
    ] {
        let (mut scene, watcher, order) = Scene::new();
        scene.inject.write_all(line.as_bytes()).unwrap();
        let ended =
            tokio::time::timeout(Duration::from_secs(20), watcher.follow(order)).await.unwrap();
        assert!(ended.unwrap_err().to_string().contains(reason));
    }
    let (_scene, watcher, order) = Scene::new();
    std::fs::write(&watcher.program, "#!/bin/sh\nexit 3\n").unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), watcher.follow(order)).await.unwrap();
    assert!(ended.unwrap_err().to_string().contains("exited with status 3"));
}
