// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;

/// The objects that the deployed loader made of each recorded node.
fn objects() -> Vec<Map<String, Value>> {
    let dir = recordings::unpacked().unwrap();
    let mut all = Vec::new();
    for node in std::fs::read_dir(dir.path()).unwrap() {
        let file = node.unwrap().path().join("expected/vms.json");
        if let Ok(text) = std::fs::read(file) {
            let vms: Vec<Map<String, Value>> = serde_json::from_slice(&text).unwrap();
            all.extend(vms);
        }
    }
    all
}

#[test] // M75
fn every_key_of_every_recorded_object_has_its_row() {
    let objects = objects();
    assert!(objects.len() > 400, "{}", objects.len());
    let lists: [(&str, &[Row]); 4] = [
        ("nics", &NICS),
        ("disks", &DISKS),
        ("filesystems", &FILESYSTEMS),
        ("pci_devices", &PCI_DEVICES),
    ];
    let mut unknown = BTreeSet::new();
    let mut look = |of: &str, object: &Map<String, Value>, rows: &[Row]| {
        let lacks = object.keys().filter(|key| !rows.iter().any(|row| row.key == *key));
        unknown.extend(lacks.map(|key| format!("{of}.{key}")));
    };
    for vm in &objects {
        look("vm", vm, &TOP);
        for (list, rows) in lists {
            entries(vm, list).into_iter().for_each(|entry| look(list, entry, rows));
        }
    }
    assert_eq!(unknown, BTreeSet::new());
}

#[test] // M75
fn no_key_has_two_rows() {
    for rows in [&TOP[..], &NICS, &DISKS, &FILESYSTEMS, &PCI_DEVICES] {
        let keys: BTreeSet<&str> = rows.iter().map(|row| row.key).collect();
        assert_eq!(keys.len(), rows.len());
    }
}

#[test] // M75
fn people_read_of_every_key_that_a_node_does_not_make() {
    let text = include_str!("../../../../docs/migration-reference.md");
    let table = text.split("## What moves with an instance").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let told = |how: How| match how {
        How::Given(_) | How::Once | How::Derived => "| at the creation",
        How::Members => "| with the data and one by one",
        How::Streamed => "| with the data",
        How::Later => "| by itself",
        How::Refused => "| refused",
        How::Warned => "| warned about",
        How::Made => "",
    };
    for row in TOP.iter().filter(|row| row.how != How::Made) {
        let of = told(row.how);
        let mut lines = table.lines().filter(|line| line.starts_with(&format!("{of} |")));
        let name = format!("`{}`", row.key);
        assert!(lines.any(|line| line.contains(&name)), "{name} is not told of in {of:?}");
    }
}

#[test] // M75
fn values_become_what_vmadm_takes() {
    let of = |key: &str, value: Value| {
        let object = Map::from_iter([(key.to_owned(), value)]);
        row(key).unwrap().value(&object)
    };
    for (key, value, want) in [
        ("quota", json!(10.25), Ok(Some(json!(11)))),
        ("quota", json!("12"), Ok(Some(json!(12)))),
        ("quota", json!(0), Ok(Some(json!(0)))),
        ("quota", json!(""), Ok(None)),
        ("quota", json!(1e300), Err(Unfit)),
        ("quota", json!(-1), Err(Unfit)),
        ("vnc_port", json!(-1), Ok(Some(json!(-1)))),
        ("alias", json!(""), Ok(None)),
        ("alias", Value::Null, Ok(None)),
        ("alias", json!(5), Err(Unfit)),
        ("docker", json!("true"), Ok(Some(json!(true)))),
        ("docker", json!("TRUE"), Err(Unfit)),
        ("docker", json!(false), Ok(None)),
        ("resolvers", json!(["", "8.8.8.8"]), Ok(Some(json!(["8.8.8.8"])))),
        ("resolvers", json!(["a,b"]), Err(Unfit)),
        ("limit_priv", json!("default,x"), Ok(Some(json!("default,x")))),
        ("image_uuid", json!("0A000000-0000-4000-8000-000000000001"), Err(Unfit)),
    ] {
        assert_eq!(of(key, value.clone()), want, "{key} {value}");
    }
}
