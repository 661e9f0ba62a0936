// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of a request: its query and its JSON body, as VMAPI's HTTP library joins them.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use super::refused::Refused;

/// Parameters by name. One of the query wins over one of the body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(Map<String, Value>);

impl Params {
    /// Reads a query.
    pub fn of_query(query: Option<&str>) -> Params {
        let mut params = Map::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            params.insert(decoded(name), json!(decoded(value)));
        }
        Params(params)
    }

    /// Reads a query and a body.
    ///
    /// # Errors
    /// 400 for a body that is announced as JSON and is none, 409 for one that is no object.
    pub fn of(query: Option<&str>, headers: &HeaderMap, body: &[u8]) -> Result<Params, Refused> {
        let mut params = Params::of_query(query);
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if kind != "application/json" || body.iter().all(u8::is_ascii_whitespace) {
            return Ok(params);
        }
        let fields = match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err(Refused::argument("the body is not an object")),
            Err(error) => return Err(bad_json(&error)),
        };
        for (name, value) in fields {
            if params.text(&name).is_none() {
                params.0.insert(name, value);
            }
        }
        Ok(params)
    }

    /// Returns a parameter that is there and not empty.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let is_set =
            |value: &&Value| !value.is_null() && **value != json!("") && **value != json!(false);
        self.0.get(name).filter(is_set)
    }

    /// Returns a parameter that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Returns a parameter of the query as it came, also an empty one.
    pub fn as_sent(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns true for `true`, as a text or a boolean.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| *value == json!(true) || *value == json!("true"))
    }

    /// Returns all parameters.
    pub fn into_object(self) -> Map<String, Value> {
        self.0
    }
}

fn bad_json(error: &serde_json::Error) -> Refused {
    let why = match error.is_eof() {
        true => "Unexpected end of JSON input".to_owned(),
        false => error.to_string(),
    };
    Refused::coded(400, "InvalidContent", &format!("Invalid JSON: {why}"))
}

/// Decodes `%XX` and `+`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
        match (first, after) {
            (b'%', [high, low, beyond @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0));
                rest = beyond;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_query_wins_over_the_body() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let of = |query: &str, body: &str| Params::of(Some(query), &headers, body.as_bytes());
        let params = of("a=1&b=&c=%7B+%2&d", r#"{"a": 2, "b": 3, "e": [1]}"#).unwrap();
        assert_eq!(params.text("a"), Some("1"));
        assert_eq!(params.get("b"), Some(&json!(3)));
        assert_eq!(params.text("c"), Some("{ %2"));
        assert_eq!((params.get("d"), params.as_sent("d")), (None, Some(String::new())));
        assert_eq!(params.text("e"), None, "a list is no text");
        assert!(
            of("x=true", "").unwrap().is_true("x")
                && !of("", r#"{"x": "yes"}"#).unwrap().is_true("x")
        );
        assert_eq!(of("", "{").unwrap_err().status(), 400);
        assert_eq!(of("", "[]").unwrap_err().status(), 409);
        assert_eq!(Params::of(None, &HeaderMap::new(), b"{").unwrap(), Params::default());
    }
}
