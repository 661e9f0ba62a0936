// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ZONEPATH/config/{metadata,tags,routes}.json`.

use serde_json::{Map, Value};

use crate::js::{self, JsonError};
use crate::origin::{Origin, ParseError};

/// The four JSON fields as text, which takes a fraction of the memory of their values. All are absent
/// if the directory of an incomplete zone cannot be read.
///
/// One line each, empty if the field is absent; compact JSON text is never empty and has no line end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigJson(Box<str>);

/// The values of the four JSON fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConfigValues {
    /// `customer_metadata` of metadata.json.
    pub customer_metadata: Option<Value>,
    /// `internal_metadata` of metadata.json.
    pub internal_metadata: Option<Value>,
    /// All of routes.json.
    pub routes: Option<Value>,
    /// All of tags.json.
    pub tags: Option<Value>,
}

impl From<&ConfigValues> for ConfigJson {
    fn from(values: &ConfigValues) -> Self {
        let ConfigValues { customer_metadata, internal_metadata, routes, tags } = values;
        let all = [customer_metadata, internal_metadata, routes, tags];
        if all.iter().all(|value| value.is_none()) {
            return ConfigJson::default();
        }
        let lines = all.map(|value| value.as_ref().map(js::compact).unwrap_or_default());
        ConfigJson(lines.join("\n").into())
    }
}

impl ConfigJson {
    /// Returns the fields that are not absent, in the order in which they are composed.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let ConfigValues { customer_metadata, internal_metadata, routes, tags } = self.values();
        [
            ("customer_metadata", customer_metadata),
            ("internal_metadata", internal_metadata),
            ("routes", routes),
            ("tags", tags),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }

    /// Returns the values.
    pub fn values(&self) -> ConfigValues {
        let mut lines = self.0.split('\n');
        // The text was printed from a value, so it can be parsed.
        let value = |line: &str| js::parse(line.as_bytes()).unwrap_or(Value::Null);
        let mut next = || lines.next().filter(|line| !line.is_empty()).map(value);
        ConfigValues {
            customer_metadata: next(),
            internal_metadata: next(),
            routes: next(),
            tags: next(),
        }
    }
}

/// Returns the value of a file. As deployed, an absent file and a text that is not JSON are an empty
/// object.
///
/// # Errors
/// The text is nested too deeply.
pub fn value(bytes: Option<&[u8]>) -> Result<Value, JsonError> {
    let empty = || Value::Object(Map::new());
    match bytes.map(js::parse) {
        None | Some(Err(JsonError::Syntax(_))) => Ok(empty()),
        Some(result) => result,
    }
}

/// Returns customer and internal metadata, each an empty object if absent.
///
/// # Errors
/// The metadata are null or have the key `hasOwnProperty`.
pub fn split_metadata(metadata: Value) -> Result<(Value, Value), ParseError> {
    let mut members = match metadata {
        Value::Object(members) => members,
        Value::Null => {
            return Err(ParseError::content(Origin::Config, "expected a JSON object, found null"));
        }
        _ => Map::new(),
    };
    // The deployed daemon crashes on this key, so nobody can rely on it.
    if members.contains_key("hasOwnProperty") {
        let what = "expected customer_metadata and internal_metadata, found the key hasOwnProperty";
        return Err(ParseError::content(Origin::Config, what));
    }
    let mut take = |key| members.shift_remove(key).unwrap_or_else(|| Value::Object(Map::new()));
    Ok((take("customer_metadata"), take("internal_metadata")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_that_is_not_json_is_an_empty_object() {
        for text in
            [None, Some(&b""[..]), Some(b"{"), Some(b"{\"a\":1,}"), Some(b"\xef\xbb\xbf{\"a\":1}")]
        {
            assert_eq!(value(text), Ok(json!({})));
        }
        assert_eq!(value(Some(b"[1]")), Ok(json!([1])));
        assert!(value(Some("[".repeat(1000).as_bytes())).is_err(), "too deep is no empty object");
    }

    #[test]
    fn kept_text_gives_the_values_back() {
        let texts =
            [r#"{"b":1.5,"2":[-1e400,0.1,1e21],"1":"\u00e9\n\ud83d\ude00\u0000"}"#, "null", "7"];
        let some = |at: usize| Some(value(Some(texts[at].as_bytes())).unwrap());
        let (a, b, c) = (some(0), some(1), some(2));
        for [customer_metadata, internal_metadata, routes, tags] in [
            [a.clone(), b.clone(), c.clone(), a.clone()],
            [None, a.clone(), None, b],
            [c, None, a, None],
            [const { None }; 4],
        ] {
            let values = ConfigValues { customer_metadata, internal_metadata, routes, tags };
            assert_eq!(ConfigJson::from(&values).values(), values);
        }
    }

    #[test]
    fn metadata_is_split() {
        let (customer, internal) =
            split_metadata(json!({"customer_metadata": null, "x": 1})).unwrap();
        assert_eq!((customer, internal), (json!(null), json!({})));
        assert_eq!(split_metadata(json!("text")).unwrap(), (json!({}), json!({})));
        assert!(split_metadata(json!(null)).is_err());
        assert!(split_metadata(json!({"hasOwnProperty": 0})).is_err());
    }
}
