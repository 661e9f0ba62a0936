// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a request says: the parameters in its path, its query and its body, its version, its digest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};
use md5::{Digest as _, Md5};
use serde_json::{Map, Value, json};

/// Parameters by name, in the order they came.
pub type Params = Map<String, Value>;

/// Decodes a query or form text; a repeated name becomes an array, as do `name[]` and `name[0]`, and
/// `name[key]` an object. A value without a name is ignored.
pub fn from_query(query: &str) -> Params {
    gathered(query, |name, value| {
        let key = name.strip_suffix(']').and_then(|name| name.split_once('['));
        match key {
            Some((name, at)) if at.bytes().all(|b| b.is_ascii_digit()) => (name, json!([value])),
            Some((name, key)) => (name, json!({ key: value })),
            None => (name, json!(value)),
        }
    })
}

/// Returns the value of a header that names the parameters of a query which are none of `known`; none where all are.
pub fn ignored(query: Option<&str>, known: &[&str]) -> Option<HeaderValue> {
    /// So many are named, each so far.
    const MOST: (usize, usize) = (10, 64);
    let plain = |name: &str| -> String {
        let letter =
            |it: char| if it.is_ascii_alphanumeric() || "_-.".contains(it) { it } else { '?' };
        name.chars().take(MOST.1).map(letter).collect()
    };
    let all = url::form_urlencoded::parse(query?.as_bytes());
    let odd = all.filter(|(name, _)| !name.is_empty() && !known.contains(&name.as_ref()));
    let odd: Vec<String> = odd.take(MOST.0).map(|(name, _)| plain(&name)).collect();
    (!odd.is_empty()).then(|| HeaderValue::from_str(&odd.join(", ")).ok()).flatten()
}

/// Decodes a query or form text as [`from_query`] does, for a service that reads the names of its pairs in another
/// way: `read` makes of each name and text the name of the parameter and its value.
pub fn gathered(query: &str, read: impl for<'a> Fn(&'a str, &str) -> (&'a str, Value)) -> Params {
    let mut params = Params::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let (name, value) = read(&name, &value);
        if name.is_empty() {
            continue;
        }
        match params.get_mut(name) {
            None => {
                params.insert(name.to_owned(), value);
            }
            Some(Value::Array(values)) if value.is_array() => {
                values.extend(value.as_array().cloned().unwrap_or_default());
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    params
}

/// Returns true for what a condition in JavaScript takes for false.
pub fn falsy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The body of a request did not become parameters.
pub enum BadBody {
    /// It is not JSON; the text says why, as the library does.
    Syntax(String),
    /// It is a list, which takes the place of the parameters that the path gave.
    List,
    /// It is JSON, but neither an object nor a list.
    NotAnObject,
}

/// Adds the body to the parameters, if its type is known; a parameter already there wins.
pub fn merge_body(
    params: &mut Params,
    headers: &HeaderMap,
    body: &[u8],
    old_platform: bool,
) -> Result<(), BadBody> {
    let fields = match media_type(headers).as_str() {
        "application/json" if !body.iter().all(u8::is_ascii_whitespace) => {
            match parse_json(body, old_platform).map_err(BadBody::Syntax)? {
                Value::Object(map) => map,
                value if falsy(&value) => Map::new(),
                Value::Array(_) => return Err(BadBody::List),
                _ => return Err(BadBody::NotAnObject),
            }
        }
        "application/x-www-form-urlencoded" => from_query(&String::from_utf8_lossy(body)),
        _ => Map::new(),
    };
    for (name, value) in fields {
        if params.get(&name).is_none_or(falsy) {
            params.insert(name, value);
        }
    }
    Ok(())
}

/// Returns the type of a body in lower case and without its parameters; an empty text if the headers name none.
pub fn media_type(headers: &HeaderMap) -> String {
    let named = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    named.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Parses JSON; the error has the words of the runtime.
pub fn parse_json(body: &[u8], old_platform: bool) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
        let at = lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        let wrong = text.get(at..).and_then(|rest| rest.chars().next());
        match wrong.filter(|_| !error.is_eof()) {
            Some(wrong) if old_platform => format!("Unexpected token {wrong}"),
            Some(wrong) => format!("Unexpected token {wrong} in JSON at position {at}"),
            None if old_platform => "Unexpected end of input".to_owned(),
            None => "Unexpected end of JSON input".to_owned(),
        }
    })
}

/// Returns true if the text is a UUID in lower case.
pub fn is_uuid(text: &str) -> bool {
    let is_lower = text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    is_lower && uuid::Uuid::try_parse(text).is_ok()
}

/// Returns true if the version range of a request, if it has one, includes the server's.
pub fn version_fits(range: &str, server: [u32; 3]) -> bool {
    let range = range.trim();
    let digits = range.trim_start_matches(['~', '^', '=', 'v', ' ']);
    let is_any = ["", "*", "x", "X"].contains(&range);
    if is_any || range.starts_with(['>', '<']) {
        return true;
    }
    let mut parts = digits.split('.').map(|part| part.parse::<u32>().ok());
    let loose = range.starts_with('^');
    let (major, minor) = (parts.next().flatten(), parts.next().flatten());
    let patch = parts.next().flatten();
    let tilde = range.starts_with('~');
    major == Some(server[0])
        && minor.is_none_or(|m| if loose { m <= server[1] } else { m == server[1] })
        && patch.is_none_or(|p| {
            if loose || tilde { p <= server[2] || minor != Some(server[1]) } else { p == server[2] }
        })
}

/// The version range that a request asks for.
pub fn asked_version(headers: &HeaderMap) -> Option<&str> {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    header("accept-version").or(header("x-api-version"))
}

/// Returns the digest that the `content-md5` of a request names and the one that its body has, if they differ.
pub fn wrong_digest(headers: &HeaderMap, body: &[u8]) -> Option<(String, String)> {
    let sent = headers.get("content-md5")?.to_str().ok()?;
    let found = STANDARD.encode(Md5::digest(body));
    (sent != found).then(|| (sent.to_owned(), found))
}

/// Returns a part of a path without its percent signs.
pub(super) fn decoded(part: &str) -> String {
    let pair = format!("_={}", part.replace('+', "%2B").replace('&', "%26"));
    let text = url::form_urlencoded::parse(pair.as_bytes()).next();
    text.map(|(_, text)| text.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameters_are_named() {
        let named = |query| ignored(query, &["state"]).map(|it| it.to_str().unwrap().to_owned());
        assert_eq!(named(Some("state=a&limt=3&x%0ay=")), Some("limt, x?y".to_owned()));
        assert_eq!((named(Some("state=a&=1")), named(None)), (None, None));
    }

    #[test]
    fn names_that_come_twice_have_lists() {
        let text = "a=1&b=2&a=3&c[]=5&c[0]=6&d[k]=7&=8&e%20f=+";
        let expected =
            json!({"a": ["1", "3"], "b": "2", "c": ["5", "6"], "d": {"k": "7"}, "e f": " "});
        assert_eq!(Value::Object(from_query(text)), expected);
        assert_eq!((decoded("a%2Fb+c&d"), decoded("%zz")), ("a/b+c&d".into(), "%zz".into()));
    }

    #[test]
    fn errors_of_json_name_the_first_wrong_character() {
        for (text, new, old) in [
            ("{", "Unexpected end of JSON input", "Unexpected end of input"),
            ("x", "Unexpected token x in JSON at position 0", "Unexpected token x"),
            ("[1,\n é]", "Unexpected token é in JSON at position 5", "Unexpected token é"),
        ] {
            let why = |old_platform| parse_json(text.as_bytes(), old_platform).unwrap_err();
            assert_eq!((why(false), why(true)), (new.to_owned(), old.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_body_has_the_digest_that_it_is_sent_with() {
        let with = |sent: &str| {
            HeaderMap::from_iter([("content-md5".parse().unwrap(), sent.parse().unwrap())])
        };
        let body = br#"{"state":"running"}"#;
        for (sent, body) in
            [("1B2M2Y8AsgTpgAmY7PhCfg==", &b""[..]), ("3msBBai3o2NiFDFf3TW4EQ==", body)]
        {
            assert_eq!(wrong_digest(&with(sent), body), None);
        }
        let wrong = wrong_digest(&with("x"), b"").unwrap();
        assert_eq!(wrong, ("x".to_owned(), "1B2M2Y8AsgTpgAmY7PhCfg==".to_owned()));
        assert_eq!(wrong_digest(&HeaderMap::new(), body), None);
    }

    #[test]
    fn versions_are_ranges() {
        for (range, fits) in [
            ("~1", true),
            ("1.0.0", true),
            ("*", true),
            ("", true),
            ("^1.0.0", true),
            (">=1", true),
            ("~2", false),
            ("2.0.0", false),
            ("1.1", false),
            ("x", true),
            ("y", false),
        ] {
            assert_eq!(version_fits(range, [1, 0, 0]), fits, "{range}");
        }
    }
}
