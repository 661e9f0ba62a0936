// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One file: the suite, kill -9, a full disk.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use store::{Batch, Bucket, Error, Expect, Query, Store};
use tempfile::TempDir;

use crate::schemas::{OTHER, VOLUMES};
use crate::suite::suite;

async fn open() -> Option<(Store, TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    Some((Store::embedded(&dir.path().join("store")).await.unwrap(), dir))
}

suite!(tokio::test(flavor = "multi_thread"), open);

#[test]
fn it_agrees_with_a_map() {
    crate::model::agrees(16, open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_open_once_and_ends_all_leases_when_it_is_opened() {
    let (store, dir) = open().await.unwrap();
    let path = dir.path().join("store");
    let error = Store::embedded(&path).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let hour = std::time::Duration::from_secs(3600);
    let first = store.claim("timers", "one", hour).await.unwrap().unwrap();
    drop(store);
    let store = Store::embedded(&path).await.unwrap();
    let second = store.claim("timers", "two", hour).await.unwrap().unwrap();
    assert!(second.number() > first.number());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [("text", b"not a store at all\n".repeat(500)), ("short", b"redb".to_vec())]
    {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let error = Store::embedded(&path).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { why } if why.contains(name)), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    let error = Store::embedded(&dir.path().join("no/such/place")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

/// Starts one of the ignored tests below as a process of its own.
#[allow(clippy::disallowed_methods)] // the program under test
fn child(name: &str, file: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    // A file that is too large is an error then, and no signal.
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(program)
        .args(["--exact", &format!("embedded::{name}"), "--ignored", "--nocapture"])
        .env("STORE_FILE", file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The file that the parent names.
fn given() -> std::path::PathBuf {
    std::env::var_os("STORE_FILE").unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of killed_in_the_middle_of_writes_it_has_every_acknowledged_one"]
async fn writes_until_it_is_killed() {
    let store = Store::embedded(&given()).await.unwrap();
    let volumes = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    let other = Bucket::<Value>::open(&store, OTHER).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let (store, volumes, other) = (store.clone(), volumes.clone(), other.clone());
        tasks.spawn(async move {
            for n in 0.. {
                let key = format!("{}-{task}-{n}", std::process::id());
                let mut batch = Batch::new();
                let record = json!({"owner": "x".repeat(n % 900), "size": n});
                volumes.put_in(&mut batch, &key, Expect::Absent, &record).unwrap();
                other.put_in(&mut batch, &key, Expect::Absent, &json!({})).unwrap();
                store.commit(batch).await.unwrap();
                println!("\nacked {key}");
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_writes_it_has_every_acknowledged_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store");
    let mut acked: Vec<String> = Vec::new();
    for round in 0..6 {
        let mut child = child("writes_until_it_is_killed", &file);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut keys = lines.filter_map(|line| line.strip_prefix("acked ").map(str::to_owned));
        // Somewhere in a commit: a different place each time.
        acked.extend(keys.by_ref().take(7 + 31 * round));
        child.kill().unwrap();
        acked.extend(keys);
        child.wait().unwrap();
        let store = Store::embedded(&file).await.unwrap();
        let volumes = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
        let other = Bucket::<Value>::open(&store, OTHER).await.unwrap();
        for key in &acked {
            let record = volumes.get(key).await.unwrap();
            let size = record.value["size"].clone();
            let owner = record.value["owner"].clone();
            let query = Query::all().with("size", size).with("owner", owner);
            let found = volumes.find(query).await.unwrap();
            assert!(found.records.contains(&record), "{key} is in the indices");
        }
        let all = async |bucket: &Bucket<Value>| -> Vec<String> {
            let (mut found, mut query) = (Vec::new(), Query::all());
            loop {
                let page = bucket.find(query).await.unwrap();
                found.extend(page.records.into_iter().map(|record| record.key));
                let Some(marker) = page.next else { return found };
                query = Query::all().after(marker);
            }
        };
        let (one, two) = (all(&volumes).await, all(&other).await);
        assert_eq!(one, two, "each batch is there whole or not at all");
        assert!(one.len() >= acked.len() && one.len() <= acked.len() + 4 * (round + 1));
    }
    assert!(acked.len() > 400);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of a_full_disk_loses_nothing_and_is_over_when_there_is_room"]
async fn outgrows_its_disk() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let store = Store::embedded(&given()).await.unwrap();
    let bucket = Bucket::<Value>::open(&store, OTHER).await.unwrap();
    let record = json!({"x": "x".repeat(100_000)});
    let old = getrlimit(Resource::Fsize);
    let limit = std::fs::metadata(given()).unwrap().len() + 300_000;
    setrlimit(Resource::Fsize, Rlimit { current: Some(limit), ..old }).unwrap();
    let mut acked = 0;
    let error = loop {
        match bucket.put(&acked.to_string(), Expect::Anything, &record).await {
            Ok(_) => acked += 1,
            Err(error) => break error,
        }
        assert!(acked < 1000, "the disk is never full");
    };
    assert!(error.is_away(), "{error}");
    for n in 0..acked {
        bucket.get(&n.to_string()).await.unwrap();
    }
    setrlimit(Resource::Fsize, old).unwrap();
    bucket.put("after", Expect::Absent, &record).await.unwrap();
    println!("\nacked {acked}");
}

#[test]
fn a_full_disk_loses_nothing_and_is_over_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let output = child("outgrows_its_disk", &dir.path().join("store")).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("\nacked "), "{text}");
}
