// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use super::*;

const GAP: Duration = Duration::from_millis(10);

fn event(name: &str, action: Action) -> DatasetEvent {
    DatasetEvent { name: name.to_owned(), action, rolled_back: false, renamed: false }
}

fn snapshot(name: &str) -> Row {
    let line = format!("-\t1\t-\t{name}\t-\t-\t-\t-\t-\tsnapshot\t-\t0\t-\t-\t5\t-");
    Row::parse(&line).unwrap()
}

#[test]
fn lists_one_event_at_once_and_a_burst_once() {
    let now = Instant::now();
    let mut datasets = NodeDatasets::new(GAP, now);
    datasets.event(&event("z/a", Action::Fetch), false, now);
    assert_eq!(datasets.next(now).as_deref(), Some("z/a"));
    // During the listing: again, when the burst is over.
    datasets.event(&event("z/a", Action::Fetch), false, now);
    datasets.listed("z/a", Vec::new(), now);
    assert_eq!(datasets.next(now), None);
    assert_eq!(datasets.next(now + GAP).as_deref(), Some("z/a"));
    datasets.listed("z/a", Vec::new(), now + GAP);
    assert!(datasets.next(now + GAP * 100).is_none());
    // A burst that never ends is listed all the same.
    let mut at = now + GAP * 100;
    for _ in 0..50 {
        datasets.event(&event("z/a", Action::Fetch), true, at);
        at += GAP / 2;
    }
    assert_eq!(datasets.next(at).as_deref(), Some("z/a"));
}

#[test] // S135
fn a_request_is_answered_though_its_dataset_is_destroyed_before_it_is_listed() {
    let now = Instant::now();
    let mut datasets = NodeDatasets::new(GAP, now);
    datasets.want("z/a", now);
    let (zone, names) = (Arc::from("a"), vec!["z/a".to_owned()]);
    datasets.asked.push(Asked { zone, at: now, names, waiters: Vec::new() });
    datasets.event(&event("z/a", Action::Expire), false, now);
    assert_eq!(datasets.next(now).as_deref(), Some("z/a"));
    let began = datasets.began("z/a").unwrap();
    datasets.listed("z/a", Vec::new(), now);
    assert_eq!(datasets.take_asked("z/a", began, false).len(), 1);
    assert!(datasets.asked.is_empty());
}

#[test]
fn lists_several_snapshots_of_one_dataset_with_it() {
    let now = Instant::now();
    let mut datasets = NodeDatasets::new(GAP, now);
    for n in 0..3 {
        datasets.event(&event(&format!("z/b@{n}"), Action::Fetch), false, now);
        let first = (n == 0).then_some("z/b@0");
        assert!(n == 2 || datasets.next(now).as_deref() == first.or(Some("z/b")));
    }
    // The third came during the listing of the dataset: one more.
    assert_eq!(datasets.next(now), None);
    datasets.listed("z/b", Vec::new(), now);
    assert_eq!(datasets.next(now).as_deref(), Some("z/b"));
    datasets.listed("z/b@0", Vec::new(), now);
    datasets.listed("z/b", Vec::new(), now);
    for n in 0..10 {
        datasets.event(&event(&format!("z/a@{n}"), Action::Fetch), false, now);
    }
    assert_eq!(datasets.next(now).as_deref(), Some("z/a"));
    assert_eq!(datasets.next(now), None);
}

#[test]
fn lists_again_what_changed_during_a_node_listing() {
    let now = Instant::now();
    let mut datasets = NodeDatasets::new(GAP, now);
    assert!(datasets.begin_snapshots(now) && !datasets.begin_snapshots(now));
    datasets.begin_refresh();
    datasets.tables.replace("z/a@new", vec![snapshot("z/a@new")]);
    datasets.event(&event("z/a@new", Action::Fetch), false, now);
    datasets.snapshots_listed(SnapshotTable::default(), now);
    assert_eq!(datasets.tables.snapshots("z/a").count(), 1, "the listing may be older");
    assert!(datasets.is_wanted("z/a"));
    datasets.refreshed(Vec::new(), now, now);
    assert!(datasets.is_wanted("z/a"));
    assert_eq!(datasets.read_at("z/a"), Some(now));
}

#[test]
fn retries_a_failed_listing() {
    let now = Instant::now();
    let mut datasets = NodeDatasets::new(GAP, now);
    datasets.want("z/a", now);
    assert!(datasets.next(now).is_some());
    datasets.failed("z/a", now, GAP);
    assert_eq!(datasets.next(now), None);
    assert_eq!(datasets.next(now + GAP).as_deref(), Some("z/a"));
    assert_eq!(datasets.failures("z/a"), 1);
    datasets.failed("z/a", now, GAP * 2);
    assert!(datasets.next(now + GAP).is_none() && datasets.next(now + GAP * 2).is_some());
    assert!(datasets.begin_snapshots(now));
    datasets.snapshots_failed(now + GAP, vec!["z/b".to_owned()], now);
    assert!(datasets.is_wanted("z/b") && !datasets.begin_snapshots(now));
    assert!(datasets.begin_snapshots(now + GAP));
}
