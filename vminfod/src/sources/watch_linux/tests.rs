// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every way a file can change, on a real file system.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::super::inbox::{Inbox, Pending};
use super::*;

struct Harness {
    dir: tempfile::TempDir,
    inbox: Arc<Inbox>,
    zones: watch::Sender<Zones>,
    task: tokio::task::JoinHandle<Result<(), WatchError>>,
}

async fn harness(zones: &[(&str, &str)]) -> Harness {
    let dir = tempfile::tempdir().unwrap();
    for sub in ["etc/zones", "tmp", "zones"] {
        fs::create_dir_all(dir.path().join(sub)).unwrap();
    }
    let inbox = Arc::new(Inbox::default());
    let zones: BTreeMap<Arc<str>, Arc<str>> =
        zones.iter().map(|(n, p)| ((*n).into(), (*p).into())).collect();
    let (sender, receiver) = watch::channel(Arc::new(zones));
    let (up, mut is_up) = watch::channel(false);
    let order = Order {
        root: Root::new(dir.path()),
        zones: receiver,
        inbox: Arc::clone(&inbox),
        health: Arc::new(move |health| {
            up.send_replace(health);
        }),
    };
    let task = tokio::spawn(follow(order));
    is_up.wait_for(|up| *up).await.unwrap();
    Harness { dir, inbox, zones: sender, task }
}

impl Harness {
    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }

    /// Waits until the signals so far satisfy the condition.
    async fn expect(&self, what: &str, condition: impl Fn(&Pending) -> bool) {
        let mut seen = Pending::default();
        let wait = async {
            while !condition(&seen) {
                self.inbox.news().await;
                let more = self.inbox.take();
                seen.files.extend(more.files);
                seen.index |= more.index;
                seen.sysinfo |= more.sysinfo;
                seen.everything |= more.everything;
            }
        };
        if timeout(Duration::from_secs(5), wait).await.is_err() {
            panic!("{what}: {seen:?}");
        }
    }

    async fn expect_file(&self, zone: &str, file: ZoneFile) {
        self.expect(zone, |seen| seen.files.contains(&(zone.to_owned(), file))).await;
    }
}

#[tokio::test]
async fn fixed_files() {
    let harness = harness(&[]).await;
    harness.write("etc/zones/z.xml", "<zone/>");
    harness.expect_file("z", ZoneFile::Xml).await;
    harness.write("etc/zones/index", "z:installed");
    harness.expect("index", |seen| seen.index).await;
    harness.write("tmp/.new", "{}");
    fs::rename(harness.path("tmp/.new"), harness.path("tmp/.sysinfo.json")).unwrap();
    harness.expect("sysinfo", |seen| seen.sysinfo).await;
    fs::remove_file(harness.path("etc/zones/z.xml")).unwrap();
    harness.expect_file("z", ZoneFile::Xml).await;
    harness.task.abort();
}

#[tokio::test]
async fn rename_over_is_seen_again_and_again() {
    let harness = harness(&[]).await;
    fs::create_dir_all(harness.path("zones/z/config")).unwrap();
    harness.zones.send_replace(Arc::new([("z".into(), "/zones/z".into())].into()));
    harness.expect_file("z", ZoneFile::Config).await;
    for round in 0..3 {
        harness.write("zones/z/config/.tmp", &format!("{round}"));
        fs::rename(
            harness.path("zones/z/config/.tmp"),
            harness.path("zones/z/config/metadata.json"),
        )
        .unwrap();
        harness.expect_file("z", ZoneFile::Config).await;
    }
    harness.write("zones/z/lastexited", "1.0 0");
    harness.expect_file("z", ZoneFile::LastExited).await;
    harness.task.abort();
}

#[tokio::test]
async fn directories_that_come_later_are_armed_and_replaced_ones_too() {
    let harness = harness(&[("z", "/pool2/deep/z")]).await;
    for round in 0..2 {
        fs::create_dir_all(harness.path("pool2/deep")).unwrap();
        fs::create_dir(harness.path("pool2/deep/z")).unwrap();
        harness.expect_file("z", ZoneFile::Config).await;
        fs::create_dir(harness.path("pool2/deep/z/config")).unwrap();
        harness.expect_file("z", ZoneFile::Config).await;
        harness.write("pool2/deep/z/config/tags.json", "{}");
        harness.expect_file("z", ZoneFile::Config).await;
        harness.write("pool2/deep/z/lastexited", &round.to_string());
        harness.expect_file("z", ZoneFile::LastExited).await;
        // The whole tree goes (an uninstall) and comes back (a rollback).
        fs::remove_dir_all(harness.path("pool2/deep/z")).unwrap();
        harness.expect_file("z", ZoneFile::LastExited).await;
    }
    harness.task.abort();
}

#[tokio::test]
async fn hard_links_and_times_are_changes() {
    let harness = harness(&[]).await;
    harness.write("etc/zones/new", "<zone/>");
    fs::hard_link(harness.path("etc/zones/new"), harness.path("etc/zones/l.xml")).unwrap();
    harness.expect_file("l", ZoneFile::Xml).await;
    let file = fs::File::options().write(true).open(harness.path("etc/zones/l.xml")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    harness.expect_file("l", ZoneFile::Xml).await;
    harness.task.abort();
}
