// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two objects side by side. Numbers are compared as doubles, whatever they were written as.

use serde_json::Value;

/// Below these, keys come from customers and have no order of ours.
const FREE: [&str; 4] = ["tags", "routes", "customer_metadata", "internal_metadata"];

/// Where they differ: place, expected, got.
pub fn differences(want: &Value, got: &Value, keys: bool) -> Vec<String> {
    let mut found = Vec::new();
    walk(&mut String::new(), want, got, keys, &mut found);
    found
}

fn walk(path: &mut String, want: &Value, got: &Value, keys: bool, found: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            let before = found.len();
            for (key, want) in a {
                let ordered = keys && !FREE.contains(&key.as_str());
                below(path, &format!(".{key}"), |path| match b.get(key) {
                    Some(got) => walk(path, want, got, ordered, found),
                    None => found.push(fault(path, &short(want), "nothing")),
                });
            }
            for (key, got) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                below(path, &format!(".{key}"), |path| {
                    found.push(fault(path, "nothing", &short(got)))
                });
            }
            if keys && found.len() == before && !a.keys().eq(b.keys()) {
                let pair = a.keys().zip(b.keys()).find(|(x, y)| x != y);
                if let Some((x, y)) = pair {
                    found.push(fault(path, &format!("key {x:?} next"), &format!("key {y:?}")));
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (want, got)) in a.iter().zip(b).enumerate() {
                below(path, &format!("[{i}]"), |path| walk(path, want, got, keys, found));
            }
        }
        _ if same(want, got) => {}
        _ => found.push(fault(path, &short(want), &short(got))),
    }
}

fn below(path: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let len = path.len();
    path.push_str(step);
    then(path);
    path.truncate(len);
}

fn same(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => want == got,
    }
}

fn fault(path: &str, want: &str, got: &str) -> String {
    let path = if path.is_empty() { "." } else { path };
    format!("{path}: expected: {want}, got: {got}")
}

fn short(value: &Value) -> String {
    let text = vm_model::js::to_ascii(value);
    match text.get(..200) {
        Some(start) if text.len() > 200 => format!("{start}…"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::differences;
    use serde_json::json;

    #[test]
    fn names_the_place_and_both_values() {
        let want = json!({"a": 1, "nics": [{"ip": "x"}], "c": 2});
        assert!(
            differences(&want, &json!({"a": 1.0, "nics": [{"ip": "x"}], "c": 2}), true).is_empty()
        );
        let got = json!({"a": 1, "nics": [{"ip": "y"}], "d": null});
        let lines = differences(&want, &got, false);
        assert_eq!(lines[0], ".nics[0].ip: expected: \"x\", got: \"y\"");
        assert_eq!(lines[1], ".c: expected: 2, got: nothing");
        assert_eq!(lines[2], ".d: expected: nothing, got: null");
        assert_eq!(differences(&json!([1]), &json!([1, 2]), false).len(), 1);
        assert_eq!(
            differences(&json!(null), &json!(false), false),
            [".: expected: null, got: false"]
        );
    }

    #[test]
    fn key_order_counts_only_when_asked_and_never_below_tags() {
        let (want, got) = (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}));
        assert!(differences(&want, &got, false).is_empty());
        assert_eq!(differences(&want, &got, true), [".: expected: key \"a\" next, got: key \"b\""]);
        assert!(differences(&json!({ "tags": want }), &json!({ "tags": got }), true).is_empty());
    }
}
