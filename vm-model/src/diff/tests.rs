// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The statements of docs/contract/vminfod.md, and the replay property.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Change, Differing, MOST_BYTES, MOST_RECORDS, Shown, diff, pretty_path};
use crate::object::VmObject;
use crate::outline::Outline;
use crate::parse::config_json::{ConfigJson, FIELDS};

fn object(value: Value) -> VmObject {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

/// The records as they are sent.
fn wire(old: Value, new: Value) -> Value {
    serde_json::to_value(diff(&object(old), &object(new))).unwrap()
}

fn text(old: Value, new: Value) -> String {
    serde_json::to_string(&diff(&object(old), &object(new))).unwrap()
}

#[test]
// S45, S46, S48, S57, S59
fn scalars_are_changed_added_and_removed() {
    assert_eq!(
        text(json!({"a": 1, "b": 2, "z": null}), json!({"z": 17, "c": "x", "a": 1})),
        concat!(
            r#"[{"prettyPath":"b","path":["b"],"action":"removed","oldValue":2},"#,
            r#"{"prettyPath":"z","path":["z"],"action":"changed","oldValue":null,"newValue":17},"#,
            r#"{"prettyPath":"c","path":["c"],"action":"added","newValue":"x"}]"#
        )
    );
}

#[test]
// S47
fn nested_maps_have_records_of_leaves() {
    assert_eq!(
        wire(
            json!({"tags": {"a": 1, "b": true}}),
            json!({"tags": {"a": 2, "a.b": "x", "b": true}})
        ),
        json!([
            {"prettyPath": "tags.a", "path": ["tags", "a"], "action": "changed", "oldValue": 1, "newValue": 2},
            {"prettyPath": "tags[a.b]", "path": ["tags", "a.b"], "action": "added", "newValue": "x"},
        ])
    );
}

#[test] // F72
fn many_changes_of_a_tenants_field_are_one_record_of_it() {
    let keys = |count: usize, value: &str| -> Value {
        (0..count).map(|n| (n.to_string(), json!(value))).collect::<serde_json::Map<_, _>>().into()
    };
    let count = |old: Value, new: Value| diff(&object(old), &object(new)).len();
    for field in FIELDS {
        assert_eq!(count(json!({field: {}}), json!({field: keys(MOST_RECORDS, "")})), MOST_RECORDS);
        let (old, new) = (json!({field: {"x": 1}}), json!({field: keys(MOST_RECORDS, "")}));
        let record = wire(old.clone(), new.clone());
        assert_eq!(record[0]["path"], json!([field]));
        assert_eq!((&record[0]["oldValue"], &record[0]["newValue"]), (&old[field], &new[field]));
        assert_eq!(record[0]["action"], "changed");
        assert_eq!(record.as_array().unwrap().len(), 1);
    }
    // Together they have one limit, and the other fields none.
    let half = keys(MOST_RECORDS / 2 + 1, "");
    let (old, new) = (json!({"tags": {}, "routes": {}}), json!({"tags": half, "routes": half}));
    assert_eq!(count(old, new), MOST_RECORDS / 2 + 2);
    let many: Vec<usize> = (0..MOST_RECORDS * 2).collect();
    for field in ["nics", "disks", "snapshots", "resolvers"] {
        assert_eq!(count(json!({field: []}), json!({field: many})), many.len());
    }
}

/// An object with these tags, as text.
fn tagged(tags: &Value) -> Outline {
    let config = ConfigJson::new("{}", "{}", &tags.to_string()).unwrap().into();
    Outline { fields: object(json!({"ram": 1, "tags": null, "v": 1})), config }
}

#[test] // F72
fn texts_that_differ_in_much_are_one_record_of_the_field() {
    let large = |count: usize| {
        let value = "x".repeat(MOST_BYTES / 4);
        let some = (0..count).map(|n| (format!("k{n}"), json!(value)));
        Value::Object(some.chain([("y".to_owned(), json!([1]))]).collect())
    };
    let records = |old: &Value, new: &Value| {
        serde_json::to_value(Differing::of(tagged(old), tagged(new)).changes()).unwrap()
    };
    let found = records(&large(3), &large(1));
    assert_eq!((&found[1]["path"], found.as_array().unwrap().len()), (&json!(["tags", "k2"]), 2));
    let (old, new) = (large(1), large(5));
    let whole = json!([{"prettyPath": "tags", "path": ["tags"], "action": "changed", "oldValue": old, "newValue": new}]);
    assert_eq!(records(&old, &new), whole);
    // What is equal in both does not count, and a whole record has it.
    let many: serde_json::Map<_, _> =
        (0..=MOST_RECORDS).map(|n| (n.to_string(), json!(n))).collect();
    let (old, new) = (json!({"same": 1}), json!({"same": 1, "many": many}));
    assert_eq!(records(&old, &new)[0]["path"], json!(["tags", "many"]));
    let mut new = many;
    new.insert("same".to_owned(), json!(1));
    let found = records(&old, &Value::Object(new.clone()));
    assert_eq!((&found[0]["newValue"], found.as_array().unwrap().len()), (&Value::Object(new), 1));
}

#[test]
// S49, B5
fn null_and_object_are_a_change() {
    let (null, text, object, array) = (json!(null), json!("text"), json!({"k": 1}), json!([1]));
    for (old, new) in [(&null, &object), (&null, &array), (&text, &object)] {
        for (old, new) in [(old, new), (new, old)] {
            let one = json!([{"prettyPath": "tags.t", "path": ["tags", "t"], "action": "changed", "oldValue": old, "newValue": new}]);
            assert_eq!(wire(json!({"tags": {"t": old}}), json!({"tags": {"t": new}})), one);
        }
    }
}

#[test]
// S57
fn old_keys_come_first_and_additions_last() {
    let list = wire(
        json!({"gone": 1, "kept": 1, "edited": {"x": 1}, "also": 1}),
        json!({"new": 1, "also": 2, "edited": {"y": 1}, "kept": 1}),
    );
    let paths: Vec<_> = list.as_array().unwrap().iter().map(|r| r["prettyPath"].clone()).collect();
    assert_eq!(paths, ["gone", "edited.x", "edited.y", "also", "new"]);
}

#[test]
fn array_and_object_are_compared_by_index() {
    assert_eq!(
        wire(json!({"d": [7]}), json!({"d": {"a": 1}})),
        json!([
            {"prettyPath": "d.0", "path": ["d", "0"], "action": "removed", "oldValue": 7},
            {"prettyPath": "d.a", "path": ["d", "a"], "action": "added", "newValue": 1},
        ])
    );
    assert_eq!(
        wire(json!({"d": "x"}), json!({"d": ["x"]})),
        json!([{"prettyPath": "d", "path": ["d"], "action": "changed", "oldValue": "x", "newValue": ["x"]}])
    );
}

#[test]
// S50, S51, S53, S57
fn nic_edits_carry_the_mac_and_whole_elements_do_not() {
    let old = json!({"nics": [
        {"mac": "02:a", "ip": "10.0.0.1", "ips": ["10.0.0.1/24"]},
        {"mac": "02:c", "ip": "10.0.0.9"},
    ]});
    let new = json!({"nics": [
        {"mac": "02:a", "ip": "10.0.0.2", "ips": ["10.0.0.2/24"]},
        {"mac": "02:b", "ip": "10.0.0.3"},
    ]});
    assert_eq!(
        wire(old, new),
        json!([
            {"prettyPath": "nics.*", "path": ["nics", null],
             "action": "removed", "oldValue": {"mac": "02:c", "ip": "10.0.0.9"}},
            {"prettyPath": "nics.*.ip", "path": ["nics", null, "ip"],
             "action": "changed", "oldValue": "10.0.0.1", "newValue": "10.0.0.2", "ident": "02:a"},
            {"prettyPath": "nics.*.ips.*", "path": ["nics", null, "ips", null],
             "action": "removed", "oldValue": "10.0.0.1/24", "ident": "02:a"},
            {"prettyPath": "nics.*.ips.*", "path": ["nics", null, "ips", null],
             "action": "added", "newValue": "10.0.0.2/24", "ident": "02:a"},
            {"prettyPath": "nics.*", "path": ["nics", null],
             "action": "added", "newValue": {"mac": "02:b", "ip": "10.0.0.3"}},
        ])
    );
}

#[test]
// S52
fn disks_are_identified_by_path() {
    assert_eq!(
        wire(
            json!({"disks": [{"path": "/d0", "size": 1}]}),
            json!({"disks": [{"path": "/d0", "size": 2}]})
        ),
        json!([{"prettyPath": "disks.*.size", "path": ["disks", null, "size"], "action": "changed",
                "oldValue": 1, "newValue": 2, "ident": "/d0"}])
    );
    let moved = wire(json!({"disks": [{"path": "/d0"}]}), json!({"disks": [{"path": "/d1"}]}));
    assert_eq!(moved[0]["action"], "removed");
    assert_eq!(moved[1]["action"], "added");
    assert!(moved[0].get("ident").is_none());
}

#[test]
fn elements_without_identity_have_records() {
    let odd = wire(json!({"nics": [1, "x", {"ip": "a"}]}), json!({"nics": [null, {"ip": "b"}]}));
    assert_eq!(odd[2]["path"], json!(["nics", null, "ip"]));
    assert!(odd[2].get("ident").is_none());
    assert_eq!(odd.as_array().unwrap().len(), 4);
}

#[test]
// S54
fn unkeyed_arrays_remove_and_add_whole_elements() {
    assert_eq!(
        wire(
            json!({"snapshots": [{"name": "s1", "size": 1}]}),
            json!({"snapshots": [{"name": "s1", "size": 2}]})
        ),
        json!([
            {"prettyPath": "snapshots.*", "path": ["snapshots", null],
             "action": "removed", "oldValue": {"name": "s1", "size": 1}},
            {"prettyPath": "snapshots.*", "path": ["snapshots", null],
             "action": "added", "newValue": {"name": "s1", "size": 2}},
        ])
    );
    // A nested array of the same name is not keyed.
    let nested = wire(
        json!({"x": {"nics": [{"mac": "a", "v": 1}]}}),
        json!({"x": {"nics": [{"mac": "a", "v": 2}]}}),
    );
    assert_eq!(nested[0]["path"], json!(["x", "nics", null]));
}

#[test]
// S55, S56
fn order_and_number_of_elements_do_not_count_but_key_order_does() {
    assert_eq!(wire(json!({"r": [1, 1, 2]}), json!({"r": [2, 1]})), json!([]));
    let order = wire(json!({"f": [{"a": 1, "b": 2}]}), json!({"f": [{"b": 2, "a": 1}]}));
    assert_eq!(order.as_array().unwrap().len(), 2);
}

#[test]
// S58
fn pretty_paths() {
    let path = |parts: &[Option<&str>]| {
        pretty_path(&parts.iter().map(|p| p.map(str::to_owned)).collect::<Vec<_>>())
    };
    assert_eq!(path(&[Some("nics"), None, Some("ip")]), "nics.*.ip");
    assert_eq!(path(&[Some("tags"), Some("a.b"), Some("c")]), "tags[a.b].c");
    assert_eq!(path(&[Some("tags"), Some("c[d]")]), "tags[c\\[d\\]]");
    assert_eq!(path(&[Some("tags"), Some("e"), Some("f.g"), Some("h")]), "tags.e[f.g].h");
    assert_eq!(path(&[Some("a]["), Some("")]), "[a\\]\\[].");
    assert_eq!(path(&[]), "");
}

/// Applies records to an object. Arrays end up equal as sets of elements: the records say no more.
fn replay(object: &mut Value, changes: &[Change<'_>]) {
    for change in changes {
        let path: Vec<&str> = change.path.iter().map(|p| p.as_deref().unwrap_or("*")).collect();
        let (last, parents) = path.split_last().unwrap();
        let mut at = &mut *object;
        for part in parents {
            at = at.get_mut(*part).unwrap();
        }
        match at {
            Value::Object(map) => {
                match change.new_value.and_then(Shown::value) {
                    Some(value) => map.insert((*last).to_owned(), value.clone()),
                    None => map.remove(*last),
                };
            }
            Value::Array(items) => {
                if let Some(old) = change.old_value.and_then(Shown::value) {
                    items.retain(|item| item != old);
                }
                items.extend(change.new_value.and_then(Shown::value).cloned());
            }
            other => panic!("cannot apply below {other}"),
        }
    }
}

fn sets(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().cloned().collect();
            keys.sort();
            Value::Object(keys.into_iter().map(|k| (k.clone(), sets(&map[&k]))).collect())
        }
        Value::Array(items) => {
            let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
            texts.sort();
            texts.dedup();
            json!(texts)
        }
        other => other.clone(),
    }
}

fn arbitrary() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_i64..4).prop_map(Value::from),
        "[ab.\\[]{0,2}".prop_map(Value::from),
    ];
    let inner = prop_oneof![
        leaf.clone(),
        proptest::collection::vec(leaf.clone(), 0..3).prop_map(Value::from),
    ];
    let map = proptest::collection::btree_map("[abc.]{1,2}", inner, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()));
    proptest::collection::btree_map("[abcd]", prop_oneof![leaf, map], 0..5)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn records_replay_to_the_new_object(old in arbitrary(), new in arbitrary()) {
        let (before, after) = (object(old.clone()), object(new.clone()));
        let mut replayed = old;
        replay(&mut replayed, &diff(&before, &after));
        prop_assert_eq!(sets(&replayed), sets(&new));
    }

    #[test]
    fn texts_have_the_records_of_their_values(old in arbitrary(), new in arbitrary()) {
        let of_texts = Differing::of(tagged(&old), tagged(&new));
        let (old, new) = (tagged(&old).whole(), tagged(&new).whole());
        let text = |changes| serde_json::to_string::<Vec<Change<'_>>>(&changes).unwrap();
        prop_assert_eq!(text(of_texts.changes()), text(diff(&old, &new)));
    }

    #[test]
    fn an_object_does_not_differ_from_itself(one in arbitrary()) {
        prop_assert!(diff(&object(one.clone()), &object(one)).is_empty());
    }
}
