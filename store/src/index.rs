// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The order of indexed values: null, false, true, numbers as JavaScript has them, strings by their
//! bytes in UTF-8. Values become bytes that compare in this order, so that all engines agree.

use serde_json::Value;

use crate::error::{Error, Invalid, Thing};
use crate::limits;
use crate::schema::Schema;

/// The name under which each record has one entry, so that records can be found by their key alone.
pub(crate) const BY_KEY: &str = "";

/// A value of an indexed field of one record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) field: &'static str,
    pub(crate) value: Vec<u8>,
}

/// Returns the index entries of a record, sorted, each once. A field with one value that is absent
/// counts as null.
pub(crate) fn entries(schema: &Schema, record: &Value) -> Result<Vec<Entry>, Error> {
    let mut found = vec![Entry { field: BY_KEY, value: Vec::new() }];
    for field in schema.fields {
        found.push(Entry { field, value: encode(field, &record[*field])? });
    }
    for field in schema.lists {
        match &record[*field] {
            Value::Null => {}
            Value::Array(items) => {
                for item in items {
                    found.push(Entry { field, value: encode(field, item)? });
                }
            }
            one => found.push(Entry { field, value: encode(field, one)? }),
        }
    }
    found.sort();
    found.dedup();
    if found.len() > limits::ENTRIES {
        let (size, limit) = (found.len(), limits::ENTRIES);
        return Err(Error::TooLarge { what: Thing::Entries, size, limit });
    }
    Ok(found)
}

/// Returns the bytes of a value.
pub(crate) fn encode(field: &str, value: &Value) -> Result<Vec<u8>, Error> {
    Ok(match value {
        Value::Null => vec![0],
        Value::Bool(false) => vec![1],
        Value::Bool(true) => vec![2],
        Value::Number(number) => {
            // Adding zero makes -0 the same as 0.
            let bits = (number.as_f64().unwrap_or_default() + 0.0).to_bits();
            let ordered = if bits >> 63 == 0 { bits ^ (1 << 63) } else { !bits };
            [&[3], &ordered.to_be_bytes()[..]].concat()
        }
        Value::String(text) if text.len() > limits::INDEXED => {
            let what = Thing::Field { field: field.to_owned() };
            return Err(Error::TooLarge { what, size: text.len(), limit: limits::INDEXED });
        }
        Value::String(text) => [&[4], text.as_bytes()].concat(),
        Value::Array(_) | Value::Object(_) => return Err(Invalid::Value(field.to_owned()).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const SCHEMA: Schema =
        Schema { bucket: "b", version: 1, fields: &["state", "size"], lists: &["refs"] };

    #[test]
    fn a_record_has_an_entry_for_its_key_each_field_and_each_item() {
        let fields = |record: Value| -> Vec<&str> {
            entries(&SCHEMA, &record).unwrap().iter().map(|entry| entry.field).collect()
        };
        assert_eq!(fields(json!({})), ["", "size", "state"]);
        assert_eq!(fields(json!({"refs": ["b", "a", "b"]})), ["", "refs", "refs", "size", "state"]);
        assert_eq!(fields(json!({"refs": null, "other": {}})), ["", "size", "state"]);
        let error = |record| entries(&SCHEMA, &record).unwrap_err().to_string();
        assert_eq!(error(json!({"state": ["a"]})), "the value of field state cannot be indexed");
        assert_eq!(error(json!({"refs": [{}]})), "the value of field refs cannot be indexed");
        assert_eq!(
            error(json!({"state": "x".repeat(1025)})),
            "indexed field state, in bytes, has 1025, 1024 is the limit"
        );
        let many: Vec<usize> = (0..4094).collect();
        assert_eq!(
            error(json!({ "refs": many })),
            "the number of indexed values has 4097, 4096 is the limit"
        );
    }

    fn encoded(value: Value) -> Vec<u8> {
        encode("f", &value).unwrap()
    }

    #[test]
    fn kinds_and_numbers_are_ordered() {
        let ordered = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1e300),
            json!(-2),
            json!(-1.5),
            json!(0),
            json!(1e-9),
            json!(1),
            json!(10),
            json!(9007199254740992u64),
            json!(""),
            json!("A"),
            json!("a"),
            json!("a\0"),
            json!("aa"),
            json!("é"),
            json!("日"),
            json!("😀"),
        ];
        for pair in ordered.windows(2) {
            assert!(encoded(pair[0].clone()) < encoded(pair[1].clone()), "{pair:?}");
        }
        assert_eq!(encoded(json!(-0.0)), encoded(json!(0)));
        assert_eq!(encoded(json!(1.0)), encoded(json!(1)));
    }

    proptest! {
        #[test]
        fn bytes_compare_as_their_values(a: f64, b: f64, s: String, t: String) {
            prop_assume!(a.is_finite() && b.is_finite());
            prop_assert_eq!(encoded(json!(a)).cmp(&encoded(json!(b))), (a + 0.0).partial_cmp(&(b + 0.0)).unwrap());
            prop_assert_eq!(encoded(json!(s)).cmp(&encoded(json!(t))), s.cmp(&t));
        }
    }
}
