// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const VM: &str = "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11";

fn redaction() -> Redaction {
    Redaction::new(b"k", [])
}

fn at(seq: u64) -> Position {
    Position { epoch: "e1".into(), seq }
}

fn stored(seq: u64, labels: Option<Labels>, body: Value) -> Stored {
    Stored { seq, labels, body: body.to_string().into() }
}

fn labels(kind: Kind, seq: u64, compared: bool) -> Labels {
    Labels { compared, ..Labels::of(kind, at(seq)) }
}

fn object(alias: &str) -> VmObject {
    json!({"zonename": "z", "uuid": VM, "alias": alias}).as_object().unwrap().clone()
}

fn snapshot(incomplete: Incomplete) -> Snapshot {
    Snapshot { at: at(9), date: "d".into(), incomplete }
}

#[test]
fn publishing_begins_behind_the_last_event_or_with_a_comparison() {
    let of = |labels: Option<Labels>| start(Some(&stored(7, labels, Value::Null)));
    assert_eq!(start(None), Start::Compare(Why::Nothing));
    assert_eq!(of(Some(labels(Kind::Modify, 5, false))), Start::Behind(at(5)));
    assert_eq!(of(Some(labels(Kind::Resync, 6, false))), Start::Behind(at(6)));
    assert_eq!(of(Some(labels(Kind::Modify, 5, true))), Start::Compare(Why::Unfinished));
    assert_eq!(of(None), Start::Compare(Why::Unfinished), "a message that no agent wrote");
}

#[test]
fn lines_of_vminfod() {
    let of = |value: Value| line(value.to_string().as_bytes(), &redaction());
    let event = of(json!({"type": "create", "zonename": "z", "uuid": VM.to_uppercase(),
        "vm": {"uuid": VM.to_uppercase()}, "seq": 3, "epoch": "e1"}));
    let Some(Line::Event(event)) = event else { panic!("{event:?}") };
    assert_eq!((event.vm.as_deref(), event.labels), (Some(VM), labels(Kind::Create, 3, false)));
    let nameless = json!({"type": "delete", "zonename": "by-hand", "seq": 4, "epoch": "e1"});
    assert_eq!(of(nameless), Some(Line::Nameless(at(4))));
    let odd = json!({"type": "modify", "uuid": "a.b.>", "seq": 5, "epoch": "e1"});
    assert_eq!(of(odd), Some(Line::Nameless(at(5))), "no uuid becomes a subject unread");
    assert_eq!(of(json!({"type": "resume", "seq": 5, "epoch": "e1"})), Some(Line::Resume(at(5))));
    assert_eq!(of(json!({"type": "ready"})), Some(Line::Other));
    assert_eq!(of(json!({"type": "modify", "uuid": VM, "epoch": "e1"})), None, "without a number");
    assert_eq!(line(b"{\"type\":", &redaction()), None);
}

#[test]
fn an_event_is_there_if_its_subject_has_it_or_what_contains_it() {
    let event = labels(Kind::Modify, 5, false);
    let of = |labels: Option<Labels>| found(&event, Some(&stored(70, labels, Value::Null)));
    assert_eq!(found(&event, None), Found::Before(0));
    for (kind, seq, compared, expected) in [
        (Kind::Modify, 4, false, Found::Before(70)),
        (Kind::Modify, 5, false, Found::Already),
        (Kind::Delete, 6, false, Found::Already),
        (Kind::Create, 5, true, Found::Already),
        (Kind::Create, 4, true, Found::Before(70)),
    ] {
        assert_eq!(of(Some(labels(kind, seq, compared))), expected, "{kind:?} {seq} {compared}");
    }
    assert_eq!(of(None), Found::Before(70), "what no agent wrote is replaced");
    let mut other = labels(Kind::Modify, 9, false);
    other.at.epoch = "e0".into();
    assert_eq!(of(Some(other)), Found::Before(70), "numbers of another start say nothing");
}

#[test]
fn only_what_differs_is_published() {
    let all = snapshot(Incomplete::Nothing);
    let shows =
        |kind, alias: &str| stored(7, Some(labels(kind, 5, false)), json!({"vm": object(alias)}));
    let kind = |stored: Option<&Stored>| {
        all.difference(VM, &object("a"), stored).map(|outgoing| outgoing.labels.kind)
    };
    assert_eq!(kind(None), Some(Kind::Create));
    assert_eq!(kind(Some(&shows(Kind::Modify, "a"))), None);
    assert_eq!(kind(Some(&shows(Kind::Modify, "b"))), Some(Kind::Modify));
    let tombstone = stored(7, Some(labels(Kind::Delete, 5, false)), json!({}));
    assert_eq!(kind(Some(&tombstone)), Some(Kind::Create));
    assert_eq!(kind(Some(&stored(7, None, json!({"stream": "CHANGES"})))), Some(Kind::Create));
    let published = all.difference(VM, &object("a"), None).unwrap();
    assert_eq!(published.labels.resume(), None, "a comparison that is cut is made again");
    assert_eq!(all.marker(Why::Gone).labels.resume(), Some(&at(9)));
}

#[test]
fn nothing_is_gone_because_it_could_not_be_read() {
    let there = stored(7, Some(labels(Kind::Modify, 5, false)), json!({"vm": object("a")}));
    let gone =
        |incomplete, stored: Option<&Stored>| snapshot(incomplete).ghost(VM, stored).is_some();
    assert!(gone(Incomplete::Nothing, Some(&there)));
    assert!(!gone(Incomplete::Everything, Some(&there)));
    assert!(!gone(Incomplete::Zones(BTreeSet::from(["z".to_owned()])), Some(&there)));
    assert!(gone(Incomplete::Zones(BTreeSet::from(["y".to_owned()])), Some(&there)));
    let tombstone = stored(7, Some(labels(Kind::Delete, 5, false)), json!({}));
    assert!(!gone(Incomplete::Nothing, Some(&tombstone)) && !gone(Incomplete::Nothing, None));
}

#[test]
fn what_is_too_large_loses_its_changes_then_its_object() {
    let big = "x".repeat(3000);
    let event = |vm: &str, change: &str| {
        let text = json!({"type": "modify", "zonename": "z", "uuid": VM, "vm": {"uuid": VM, "alias": vm},
            "changes": [{"path": ["alias"], "newValue": change}], "seq": 5, "epoch": "e1"});
        let Some(Line::Event(event)) = line(text.to_string().as_bytes(), &redaction()) else {
            panic!()
        };
        event
    };
    let of = |outgoing: Outgoing| -> Value { serde_json::from_slice(&outgoing.body).unwrap() };
    let small = event("a", "b");
    assert_eq!(small.clone().fitted(1000), small);
    let without_changes = of(event("a", &big).fitted(1000));
    assert_eq!(
        (&without_changes["vm"]["alias"], &without_changes["changes"]),
        (&json!("a"), &json!([]))
    );
    let fitted = event(&big, "b").fitted(1000);
    assert!(fitted.body.len() <= 1000);
    let without_object = of(fitted.clone());
    assert_eq!((&without_object["vm"], &without_object["seq"]), (&Value::Null, &json!(5)));
    // The next comparison finds no difference.
    let vm = json!({"uuid": VM, "alias": big}).as_object().unwrap().clone();
    let there = Stored { seq: 1, labels: Some(fitted.labels), body: fitted.body };
    assert_eq!(snapshot(Incomplete::Nothing).difference(VM, &vm, Some(&there)), None);
}

proptest! {
    #[test]
    fn no_line_makes_the_agent_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = line(&text, &redaction());
    }

    #[test]
    fn publishing_a_difference_leaves_none(aliases in prop::collection::vec("[ab]{1}", 2)) {
        let all = snapshot(Incomplete::Nothing);
        let before = stored(7, Some(labels(Kind::Modify, 5, false)), json!({"vm": object(&aliases[0])}));
        let now = object(&aliases[1]);
        if let Some(outgoing) = all.difference(VM, &now, Some(&before)) {
            let after = Stored { seq: 8, labels: Some(outgoing.labels), body: outgoing.body };
            prop_assert_eq!(all.difference(VM, &now, Some(&after)), None);
        } else {
            prop_assert_eq!(&aliases[0], &aliases[1]);
        }
    }
}
