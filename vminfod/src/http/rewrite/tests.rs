// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use serde_json::json;

use super::*;
use crate::store::{Outcome, Store};
use daemon::journal::{BYTES, Read};

fn put(store: &Store, name: &str, object: VmObject) -> Outcome {
    let old = store.published().snapshot().vms.get(name).map(|vm| vm.object().into());
    store.put(name, object.into(), &[], || old)
}

fn vm(value: Value) -> VmObject {
    value.as_object().unwrap().clone()
}

/// Returns what a listener gets of a create, three modifies and a delete of one VM.
fn seen(format: Format, query: Option<&str>) -> Vec<Option<Value>> {
    let store = Store::new(BYTES);
    let of = |state: &str, alias: &str, ip: &str| {
        vm(json!({
            "zonename": "z", "uuid": "u", "brand": "lx", "state": state, "alias": alias,
            "nics": [{"mac": "m", "ip": ip}],
        }))
    };
    put(&store, "z", of("stopped", "caf\u{e9}", "1"));
    put(&store, "z", of("running", "caf\u{e9}", "1"));
    put(&store, "z", of("running", "b", "2"));
    put(&store, "z", of("stopped", "b", "2"));
    store.remove("z");
    let Read::Lines { lines, .. } = store.published().journal.read(0, usize::MAX) else {
        panic!("no events")
    };
    let mut rewrite = rewrite(format, Filter::of(query));
    lines
        .into_iter()
        .map(|entry| {
            let line = match &mut rewrite {
                Some(rewrite) => rewrite(entry)?,
                None => entry.line,
            };
            assert!(line.is_ascii() && line.ends_with(b"\n"));
            Some(serde_json::from_slice(&line).unwrap())
        })
        .collect()
}

fn kinds(seen: &[Option<Value>]) -> Vec<&str> {
    seen.iter()
        .map(|event| event.as_ref().map_or("-", |event| event["type"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_filter_of_everything_changes_nothing() {
    // Two stores have different epochs and dates.
    let text = |event: Option<Value>| {
        let mut event = event.unwrap();
        (event["date"], event["epoch"]) = (Value::Null, Value::Null);
        event.to_string()
    };
    let plain = seen(Format::Shipped, None).into_iter().map(text);
    let all = seen(Format::Shipped, Some("filter=1")).into_iter().map(text);
    assert_eq!(plain.collect::<Vec<_>>(), all.collect::<Vec<_>>());
}

#[test]
fn a_vm_enters_and_leaves_a_filter() {
    let events = seen(Format::Shipped, Some("filter=1&state=running"));
    assert_eq!(kinds(&events), ["-", "create", "modify", "delete", "-"]);
    let [_, Some(create), Some(modify), Some(delete), _] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((&create["vm"]["state"], create.get("changes")), (&json!("running"), None));
    assert_eq!(modify["changes"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&delete["zonename"], delete.get("vm"), &delete["seq"]),
        (&json!("z"), None, &json!(4))
    );
    assert_eq!(kinds(&seen(Format::Shipped, Some("filter=1&uuid=other"))), ["-"; 5]);
    assert_eq!(
        kinds(&seen(Format::Shipped, Some("filter=1&types=delete,create"))),
        ["create", "-", "-", "-", "delete"]
    );
}

#[test]
fn sends_only_changes_of_shown_fields() {
    let events = seen(Format::Shipped, Some("filter=1&fields=alias"));
    assert_eq!(kinds(&events), ["create", "-", "modify", "-", "delete"]);
    let modify = events[2].as_ref().unwrap();
    assert_eq!(modify["vm"], json!({"zonename": "z", "uuid": "u", "alias": "b"}));
    assert_eq!(modify["changes"][0]["prettyPath"], "alias");
    assert_eq!(modify["changes"].as_array().unwrap().len(), 1);
}

#[test]
fn writes_rfd_39s_format() {
    let events = seen(Format::Rfd39, None);
    let keys = |at: usize| {
        events[at].as_ref().unwrap().as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(0), ["ts", "type", "zonename", "vm", "seq", "epoch"]);
    assert_eq!(keys(1), ["ts", "type", "vm", "changes", "seq", "epoch"]);
    assert_eq!(keys(4), ["ts", "type", "zonename", "seq", "epoch"]);
    assert_eq!(
        events[2].as_ref().unwrap()["changes"],
        json!([
            {"path": "alias", "action": "changed", "from": "caf\u{e9}", "to": "b"},
            {"path": "nics.0.ip", "action": "changed", "from": "1", "to": "2"},
        ])
    );
    // A filter and a format at once.
    let events = seen(Format::Rfd39, Some("filter=1&fields=nics&state=running"));
    assert_eq!(kinds(&events), ["-", "create", "modify", "delete", "-"]);
    assert_eq!(
        events[2].as_ref().unwrap()["changes"],
        json!([{"path": "nics.0.ip", "action": "changed", "from": "1", "to": "2"}])
    );
}
