// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Ends of zones as vminfod shows them.

use serde_json::json;

use super::*;
use crate::verdict::word;

const WINDOW: Duration = Duration::from_secs(210);

fn facts(value: Value) -> Facts {
    let mut vm =
        json!({"brand": "kvm", "zone_state": "running", "state": "running", "autoboot": true});
    let fields = vm.as_object_mut().unwrap();
    fields.extend(value.as_object().unwrap().clone());
    Facts::of(fields).unwrap()
}

/// A life through these readings, ten seconds apart; the last is where it came to rest.
fn said(readings: &[Value]) -> String {
    let mut life = Life::begin(&facts(json!({})), None);
    let mut at = Duration::ZERO;
    let mut last = Facts::default();
    for reading in readings {
        at += Duration::from_secs(10);
        last = facts(reading.clone());
        life.see(&last, at);
    }
    let verdict = life.verdict(&last, at, WINDOW);
    assert!(!verdict.evidence.is_empty());
    format!("{}/{} {}", word(&verdict.initiator), word(&verdict.kind), word(&verdict.confidence))
}

fn rest(more: Value) -> Value {
    let mut rest = json!({"zone_state": "installed", "state": "stopped", "exit_timestamp": "t1"});
    rest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rest
}

#[test]
fn every_way_a_zone_ends() {
    let stopping = json!({"state": "stopping", "transition_to": "stopped"});
    let off = json!({"autoboot": false});
    let cases: &[(&[Value], &str)] = &[
        (&[rest(json!({"exit_status": 0}))], "guest/poweroff low"),
        (&[rest(json!({"exit_status": 0, "brand": "bhyve"}))], "guest/poweroff medium"),
        (&[rest(json!({"exit_status": 1, "brand": "bhyve"}))], "guest/poweroff low"),
        (&[rest(json!({"exit_status": 3, "brand": "bhyve"}))], "guest/reset low"),
        (&[rest(json!({"exit_status": 1}))], "unknown/abrupt low"),
        (&[rest(json!({"exit_status": -9}))], "unknown/abrupt low"),
        (&[rest(json!({}))], "unknown/abrupt low"),
        (
            &[stopping.clone(), rest(json!({"exit_status": 0, "autoboot": false}))],
            "host/powerdown high",
        ),
        (
            &[stopping.clone(), rest(json!({"exit_status": -9, "autoboot": false}))],
            "host/kill-after-powerdown high",
        ),
        (
            &[
                json!({"state": "stopping", "transition_to": "start"}),
                rest(json!({"exit_status": 0})),
            ],
            "host/reset high",
        ),
        (
            &[off.clone(), rest(json!({"exit_status": 0, "autoboot": false}))],
            "host/powerdown medium",
        ),
        (&[rest(json!({"exit_status": -9, "autoboot": false}))], "host/signal medium"),
        (
            &[
                json!({"do_not_inventory": true}),
                rest(json!({"exit_status": 0, "do_not_inventory": true})),
            ],
            "host/migrated medium",
        ),
        // Deleted or reprovisioned: the zone is taken apart after its end.
        (
            &[
                rest(json!({"exit_status": 0})),
                rest(json!({"exit_status": 0, "zone_state": "configured"})),
            ],
            "host/quit medium",
        ),
        // The stop was taken back and the guest lived on.
        (
            &[stopping, json!({"state": "running"}), rest(json!({"exit_status": 0}))],
            "guest/poweroff low",
        ),
        (&[off, json!({"autoboot": true}), rest(json!({"exit_status": 0}))], "guest/poweroff low"),
    ];
    for (readings, wanted) in cases {
        assert_eq!(said(readings), *wanted, "{readings:?}");
    }
}

#[test]
fn an_exit_of_an_earlier_life_says_nothing() {
    let life = Life::begin(&facts(json!({})), Some("t1".into()));
    let now = facts(rest(json!({"exit_status": 0})));
    assert!(!life.has_exit(&now));
    assert_eq!(life.verdict(&now, Duration::ZERO, WINDOW).kind, Kind::Abrupt);
}

#[test]
fn an_intent_of_long_ago_explains_nothing() {
    let mut life = Life::begin(&facts(json!({})), None);
    life.see(&facts(json!({"autoboot": false})), Duration::from_secs(1));
    let now = facts(rest(json!({"exit_status": 0, "autoboot": false})));
    let verdict = life.verdict(&now, Duration::from_secs(1000), WINDOW);
    assert_eq!(verdict.initiator, Initiator::Guest);
}

#[test]
fn a_deletion_is_the_hosts() {
    let mut life = Life::begin(&facts(json!({})), None);
    life.delete();
    let verdict = life.verdict(&facts(rest(json!({"exit_status": 0}))), Duration::ZERO, WINDOW);
    assert_eq!((verdict.initiator, verdict.kind), (Initiator::Host, Kind::Quit));
}

#[test]
fn qemus_word_wins_where_it_is_as_sure() {
    let zone = |sure| Verdict::new(Initiator::Guest, Kind::Poweroff, sure).on("exit status 0");
    let qmp = Verdict::new(Initiator::Host, Kind::Signal, Confidence::High).on("SHUTDOWN");
    let (joined, by_qmp) = join(Some(qmp.clone()), zone(Confidence::Low));
    assert!(by_qmp && joined.kind == Kind::Signal && joined.evidence.len() == 2);
    let abrupt = Verdict::new(Initiator::Unknown, Kind::Abrupt, Confidence::Low);
    assert!(!join(Some(abrupt), zone(Confidence::Medium)).1);
    let unwatched = Verdict::new(Initiator::Unknown, Kind::Unwatched, Confidence::Low);
    assert!(!join(Some(unwatched), zone(Confidence::Low)).1);
}

#[test]
fn other_brands_are_nobodys_business_here() {
    let vm = json!({"brand": "joyent", "zone_state": "running"});
    assert_eq!(Facts::of(vm.as_object().unwrap()), None);
}
