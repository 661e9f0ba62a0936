// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of a request: its path, its body and its query, as VMAPI's HTTP library joins them.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use sdc_clients::restify;
use serde_json::{Map, Value, json};

use super::refused::Refused;
use super::through::Through;

/// Parameters by name. One of the path wins over one of the body, and that over one of the query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    fields: Map<String, Value>,
    /// The body has a type of which VMAPI reads nothing.
    pub is_body_unread: bool,
    /// Who asks.
    pub through: Through,
}

impl Params {
    /// Reads a query.
    pub fn of_query(query: Option<&str>) -> Params {
        Params { fields: pairs(query.unwrap_or_default()), ..Params::default() }
    }

    /// The same, asked for by this.
    pub fn through(self, through: Through) -> Params {
        Params { through, ..self }
    }

    /// Reads the uuid in a path, a body and a query. A list as the body takes the place of the path.
    /// Refuses with 400 for a body that is announced as JSON and is none, 409 for one that is neither object nor
    /// list, 415 for one that is encoded or in parts.
    pub fn of(
        uuid: Option<&str>,
        query: Option<&str>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Params, Refused> {
        let mut params = Params { through: Through::of(headers), ..Params::default() };
        params.fields.extend(uuid.map(|uuid| ("uuid".to_owned(), json!(uuid))));
        match content(headers, body)? {
            Content::Fields(fields) => params.fill(fields),
            Content::List => params.fields.clear(),
            Content::Unread => params.is_body_unread = true,
        }
        params.fill(pairs(query.unwrap_or_default()));
        Ok(params)
    }

    /// Adds fields whose names have no value yet.
    fn fill(&mut self, fields: Map<String, Value>) {
        for (name, value) in fields {
            if self.get(&name).is_none() {
                self.fields.insert(name, value);
            }
        }
    }

    /// Returns a parameter that is there and not what JavaScript takes for false.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !restify::falsy(value))
    }

    /// Returns a parameter that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Returns a parameter of the query as it came, also an empty one. A list is the text that no value has.
    pub fn as_sent(&self, name: &str) -> Option<String> {
        let value = self.fields.get(name)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Returns true for `true`, as a text or a boolean.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| *value == json!(true) || *value == json!("true"))
    }

    /// Returns all parameters.
    pub fn into_object(self) -> Map<String, Value> {
        self.fields
    }
}

/// The content of a body.
enum Content {
    Fields(Map<String, Value>),
    List,
    /// VMAPI does not read this type.
    Unread,
}

fn content(headers: &HeaderMap, body: &[u8]) -> Result<Content, Refused> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Content::Fields(Map::new()));
    }
    let unreadable = |why| Err(Refused::coded(415, "UnsupportedMediaTypeError", why));
    if headers.contains_key(CONTENT_ENCODING) {
        return unreadable("An encoded body cannot be read: send it without content-encoding");
    }
    let is_twice = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
    if is_twice(&CONTENT_TYPE) {
        return unreadable("The body has two types");
    }
    match restify::media_type(headers).as_str() {
        "application/json" => match restify::parse_json(body, false) {
            Ok(Value::Object(fields)) => Ok(Content::Fields(fields)),
            Ok(Value::Array(_)) => Ok(Content::List),
            Ok(_) => Err(Refused::argument("the body is not an object")),
            Err(why) => Err(Refused::coded(400, "InvalidContent", &format!("Invalid JSON: {why}"))),
        },
        "application/x-www-form-urlencoded" => {
            Ok(Content::Fields(pairs(&String::from_utf8_lossy(body))))
        }
        "multipart/form-data" => unreadable("A form in parts cannot be read: send JSON"),
        _ => Ok(Content::Unread),
    }
}

/// Reads a query or a form. A name that has a key in brackets has a list; `[name]` is `name`.
fn pairs(text: &str) -> Map<String, Value> {
    restify::gathered(text, |name, value| {
        let (name, key) = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, key)) => (name, key),
            None => name.split_at(name.find('[').unwrap_or(name.len())),
        };
        (name, if key.is_empty() { json!(value) } else { json!([value]) })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    #[test] // M96
    fn the_path_wins_over_the_body_and_that_over_the_query() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("Application/JSON; charset=utf-8"));
        let of =
            |query: &str, body: &str| Params::of(Some("u"), Some(query), &headers, body.as_bytes());
        let body = r#"{"a": 2, "b": 0, "e": [1], "uuid": "v"}"#;
        let params = of("a=1&b=3&c=%7B+%2&d&uuid=w", body).unwrap();
        assert_eq!(params.get("a"), Some(&json!(2)));
        assert_eq!(params.text("b"), Some("3"));
        assert_eq!(params.text("c"), Some("{ %2"));
        assert_eq!((params.get("d"), params.as_sent("d")), (None, Some(String::new())));
        assert_eq!(params.text("e"), None, "a list is no text");
        assert_eq!(params.text("uuid"), Some("u"));
        assert_eq!(of("uuid=w", "[]").unwrap().text("uuid"), Some("w"));
        assert_eq!(of("", "[{}]").unwrap(), Params::default());
        assert!(of("x=true", "").unwrap().is_true("x"));
        assert!(!of("", r#"{"x": "yes"}"#).unwrap().is_true("x"));
        assert_eq!(of("", "{").unwrap_err().status(), 400);
        assert_eq!(of("", "7").unwrap_err().status(), 409);
        let untyped = Params::of(None, None, &HeaderMap::new(), b"{").unwrap();
        assert_eq!(untyped, Params { is_body_unread: true, ..Params::default() });
    }

    #[test] // M96
    fn names_that_come_twice_or_with_keys_are_lists() {
        let params = Params::of_query(Some("a=1&a=2&a=3&b[]=1&c%5Bk%5D=1&[d]=1&[e][f]=1&=1"));
        for name in ["a", "b", "c", "e"] {
            assert!(params.get(name).unwrap().is_array(), "{name}");
        }
        assert_eq!(params.text("d"), Some("1"));
    }
}
