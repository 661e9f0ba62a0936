// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What differs between two copies of a record, in the words of the changefeed. Pure.

use serde_json::{Value, json};

use super::record::Record;

/// Returns the field of each difference, a field once for each difference in it: first the fields of
/// the old copy, then what only the new one has. Without an old copy everything is new.
pub(super) fn differing(old: Option<&Record>, new: &Record) -> Vec<String> {
    let nothing = Record::from_iter([("tags".to_owned(), json!({}))]);
    let old = old.unwrap_or(&nothing);
    let mut fields = Vec::new();
    let mut add = |name: &String, count: usize| {
        fields.extend(std::iter::repeat_n(name.clone(), count));
    };
    for (name, was) in old {
        add(name, new.get(name).map_or(1, |is| differences(was, is)));
    }
    for name in new.keys().filter(|name| !old.contains_key(*name)) {
        add(name, 1);
    }
    fields
}

fn differences(was: &Value, is: &Value) -> usize {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            let changed =
                was.iter().map(|(name, was)| is.get(name).map_or(1, |is| differences(was, is)));
            changed.sum::<usize>() + is.keys().filter(|name| !was.contains_key(*name)).count()
        }
        (Value::Array(was), Value::Array(is)) => {
            let changed = was.iter().zip(is).map(|(was, is)| differences(was, is));
            changed.sum::<usize>() + was.len().abs_diff(is.len())
        }
        _ => usize::from(was != is),
    }
}
