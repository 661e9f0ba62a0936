// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Without a watcher, the sweep finds every kind of change by the stamps of the files, and unchanged
//! files are not read.

use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::common::scene::{assert_told, told};
use crate::common::{A, FakeNode, Served, xml};
use vminfod::config::Config;

/// A daemon that sweeps often and watches no files.
async fn swept(node: &FakeNode) -> Served {
    node.serve_deaf(Config { sweep: Duration::from_millis(50), ..node.config() }).await
}

/// What does not change is read again at most because it was young, and then no more.
async fn is_left_alone(served: &Served) {
    served.sweeps(3).await;
    let loads = served.counter("loads").await;
    served.sweeps(5).await;
    assert_eq!(served.counter("loads").await, loads, "nothing has changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_finds_every_kind_of_file_change() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    let own = |name: &str| format!("/zones/{A}/{name}");
    node.write(&own("config/tags.json"), r#"{"a":1}"#);
    std::fs::remove_file(node.path(&own("config/routes.json"))).unwrap();
    let served = swept(&node).await;
    let mut events = served.events().await;
    // What is in between two steps may be seen, too; what never comes is a failure.
    let mut changed = async |path: &str, end: &str| {
        let is_it = |line: &String| line.starts_with(path) && line.ends_with(end);
        events.until(|event| told(event).iter().any(is_it)).await;
    };
    let age = |name: &str| node.set_modified(&own(name), Duration::from_secs(1_000_000_000));

    // In place, of the same size, and with the time that it had, as soon as it was read.
    std::fs::write(node.path(&own("config/tags.json")), r#"{"a":2}"#).unwrap();
    age("config/tags.json");
    changed("tags.a", "-> 2").await;
    // What was not there.
    node.write(&own("config/routes.json"), r#"{"10.1.1.0/24":"10.1.1.1"}"#);
    changed("routes", "").await;
    std::fs::remove_file(node.path(&own("config/routes.json"))).unwrap();
    changed("routes", "").await;
    node.write(&own("lastexited"), "1449000000.1 256\n");
    changed("exit_status", "-> 1").await;
    // A file of the same size, name and time in its place.
    node.write(&own("config/new.json"), r#"{"a":3}"#);
    age("config/new.json");
    let [new, tags] = ["config/new.json", "config/tags.json"].map(|name| node.path(&own(name)));
    std::fs::rename(new, tags).unwrap();
    changed("tags.a", "-> 3").await;
    // Another directory, and then the first one again.
    let [config, away, other] = ["config", "away", "other"].map(|name| node.path(&own(name)));
    for name in ["metadata", "tags"] {
        node.write(&own(&format!("other/{name}.json")), r#"{"a":4}"#);
    }
    std::fs::rename(&config, &away).unwrap();
    std::fs::rename(&other, &config).unwrap();
    changed("tags.a", "-> 4").await;
    std::fs::rename(&config, &other).unwrap();
    std::fs::rename(&away, &config).unwrap();
    changed("tags.a", "-> 3").await;
    // All of the zone's files at once, as a rollback does it.
    let zone = |name: &str| node.path(&format!("/zones/{name}"));
    std::fs::rename(zone(A), zone("gone")).unwrap();
    std::fs::create_dir_all(zone(A)).unwrap();
    std::fs::rename(zone("gone").join("other"), zone(A).join("config")).unwrap();
    changed("tags.a", "-> 4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_a_linked_configuration_again() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    let link = node.path(&format!("/etc/zones/{A}.xml"));
    for alias in ["first", "second"] {
        node.write(&format!("/etc/{alias}.xml"), &xml(A, alias));
    }
    std::fs::remove_file(&link).unwrap();
    symlink(node.path("/etc/first.xml"), &link).unwrap();
    let served = swept(&node).await;
    assert_eq!(served.vm(A).await["alias"], "first");
    // Its stamp is the link's, at the start and later.
    is_left_alone(&served).await;
    let mut events = served.events().await;
    let next = link.with_extension("next");
    symlink(node.path("/etc/second.xml"), &next).unwrap();
    std::fs::rename(next, &link).unwrap();
    assert_told(&told(&events.soon().await), &["alias changed \"first\" -> \"second\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_for_readable_files_of_an_incomplete_zone() {
    let node = FakeNode::new();
    node.add_zone(A, "incomplete", None, "one");
    let tags = node.path(&format!("/zones/{A}/config/tags.json"));
    std::fs::remove_file(&tags).unwrap();
    symlink(node.path("/etc/hosts"), &tags).unwrap();
    let served = swept(&node).await;
    is_left_alone(&served).await;
    let mut events = served.events().await;
    node.write(&format!("/zones/{A}/config/tags.json"), r#"{"a":1}"#);
    assert_told(&told(&events.soon().await), &["tags added - -> {\"a\":1}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_zone_list_hides_no_zone_read_otherwise() {
    let node = FakeNode::one();
    let served = swept(&node).await;
    let mut events = served.events().await;
    served.sweeps(2).await;
    // Read alone it says something else for a moment; the list never did.
    node.set_zone(A, "installed", None);
    assert_eq!(served.json(&format!("/vms/{A}?sync=true")).await["state"], "stopped");
    node.set_zone(A, "running", Some(5));
    events.soon().await;
    assert_told(&told(&events.soon().await), &["state changed \"stopped\" -> \"running\""]);
}
