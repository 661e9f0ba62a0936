// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ZONEPATH/config/{metadata,tags,routes}.json`. A tenant decides how much is in them, so they are kept
//! and compared as text.

use std::collections::HashSet;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::js::{self, JsonError};
use crate::origin::{Origin, ParseError};

/// The fields of these files, in the order in which they are composed.
pub const FIELDS: [&str; 4] = ["customer_metadata", "internal_metadata", "routes", "tags"];

/// The text of an absent file and of an absent member of metadata.json.
const EMPTY: &str = "{}";

/// The texts of [`FIELDS`]. All are absent if the directory of an incomplete zone cannot be read.
///
/// One line each, empty if the field is absent; compact JSON text is never empty and has no line end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigJson(Box<str>);

impl ConfigJson {
    /// Takes the texts of the three files, as [`text`] returns them.
    pub fn new(metadata: &str, routes: &str, tags: &str) -> Result<Self, ParseError> {
        let (customer, internal) = split_metadata(metadata)?;
        Ok(Self([customer, internal, routes, tags].join("\n").into()))
    }

    /// Returns the fields that are not absent, and their texts.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        FIELDS.into_iter().zip(self.0.split('\n')).filter(|(_, text)| !text.is_empty())
    }

    /// Returns the text of a field.
    pub fn text(&self, field: &str) -> Option<&str> {
        let place = FIELDS.iter().position(|name| *name == field)?;
        self.0.split('\n').nth(place).filter(|text| !text.is_empty())
    }

    /// Returns the same to be written as it is.
    pub fn raw(&self, field: &str) -> Option<&RawValue> {
        self.text(field).and_then(|text| serde_json::from_str(text).ok())
    }
}

/// Returns the value of a text that is kept.
pub fn value(text: &str) -> Value {
    // It was made by `js::compact`, so it can be parsed.
    serde_json::from_str(text).unwrap_or_default()
}

/// Returns the text of a file as it is kept. As deployed, an absent file is an empty object, and so is
/// one that is not JSON: then the second is the reason.
pub fn text(bytes: Option<&[u8]>) -> Result<(String, Option<JsonError>), JsonError> {
    match bytes.map(js::compact) {
        None => Ok((EMPTY.to_owned(), None)),
        Some(Ok(text)) => Ok((text, None)),
        Some(Err(error @ JsonError::Syntax(_))) => Ok((EMPTY.to_owned(), Some(error))),
        Some(Err(error)) => Err(error),
    }
}

/// Returns the texts of customer and internal metadata, each an empty object if absent.
fn split_metadata(metadata: &str) -> Result<(&str, &str), ParseError> {
    let (mut customer, mut internal) = (EMPTY, EMPTY);
    let error = |what| Err(ParseError::content(Origin::Config, what));
    if metadata == "null" {
        return error("expected a JSON object, found null");
    }
    for member in members(metadata).into_iter().flatten() {
        if let Some(value) = member.strip_prefix("\"customer_metadata\":") {
            customer = value;
        } else if let Some(value) = member.strip_prefix("\"internal_metadata\":") {
            internal = value;
        } else if member.starts_with("\"hasOwnProperty\":") {
            // The deployed daemon crashes on this key, so no client can rely on it.
            return error(
                "expected customer_metadata and internal_metadata, found the key hasOwnProperty",
            );
        }
    }
    Ok((customer, internal))
}

/// Returns the old and the new text of a field, without the members of an object that both have.
pub fn differing(old: &str, new: &str) -> [String; 2] {
    let rest = |text: &str, other: &HashSet<&str>| {
        let own = members(text).into_iter().flatten().filter(|member| !other.contains(member));
        format!("{{{}}}", own.collect::<Vec<_>>().join(","))
    };
    match (members(old), members(new)) {
        (Some(olds), Some(news)) => [rest(old, &news.collect()), rest(new, &olds.collect())],
        _ => [old.to_owned(), new.to_owned()],
    }
}

/// Returns the members of an object, each `"key":value`, from its compact text; `None` if it is none.
fn members(text: &str) -> Option<impl Iterator<Item = &str>> {
    let inside = text.strip_prefix('{')?.strip_suffix('}')?;
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let ends = move |c: char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => depth = depth.saturating_sub(1),
            _ => return c == ',' && depth == 0 && !in_string,
        }
        false
    };
    Some(inside.split(ends).filter(|member| !member.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_that_is_not_json_is_an_empty_object() {
        for bytes in [&b""[..], b"{", b"{\"a\":1,}", b"\xef\xbb\xbf{\"a\":1}"] {
            let (text, doubt) = text(Some(bytes)).unwrap();
            assert_eq!((&*text, doubt.is_some()), ("{}", true));
        }
        assert_eq!(text(None), Ok(("{}".to_owned(), None)));
        assert_eq!(text(Some(b"[ 1 ]")), Ok(("[1]".to_owned(), None)));
        assert!(text(Some("[".repeat(1000).as_bytes())).is_err(), "too deep is no empty object");
    }

    #[test]
    fn metadata_is_split() {
        let split = |metadata| split_metadata(metadata).unwrap();
        let both = r#"{"x":",\"","internal_metadata":{"a":[1,{}]},"customer_metadata":null}"#;
        assert_eq!(split(both), ("null", r#"{"a":[1,{}]}"#));
        assert_eq!(split("\"text\""), ("{}", "{}"));
        assert!(split_metadata("null").is_err());
        assert!(split_metadata(r#"{"hasOwnProperty":0}"#).is_err());
    }

    #[test]
    fn fields_are_found_by_name() {
        let config = ConfigJson::new(r#"{"customer_metadata":{"a":"b"}}"#, "7", "null").unwrap();
        let texts =
            [(FIELDS[0], r#"{"a":"b"}"#), (FIELDS[1], "{}"), (FIELDS[2], "7"), (FIELDS[3], "null")];
        assert_eq!(config.texts().collect::<Vec<_>>(), texts);
        assert_eq!(config.raw("tags").map(RawValue::get), Some("null"));
        assert_eq!((config.text("alias"), ConfigJson::default().text("tags")), (None, None));
        assert_eq!(value(texts[0].1), json!({"a": "b"}));
    }

    #[test]
    fn members_that_are_equal_in_both_are_left_out() {
        let table = [
            (
                r#"{"a":1,"b":{"c":",\\\"}"}}"#,
                r#"{"b":{"c":",\\\"}"},"a":2}"#,
                r#"{"a":1}"#,
                r#"{"a":2}"#,
            ),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, "{}", "{}"),
            ("{}", r#"{"a":[1,2]}"#, "{}", r#"{"a":[1,2]}"#),
            ("[1,2]", r#"{"a":1}"#, "[1,2]", r#"{"a":1}"#),
        ];
        for (old, new, in_old, in_new) in table {
            assert_eq!(differing(old, new), [in_old, in_new]);
        }
    }
}
