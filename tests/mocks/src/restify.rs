// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What NAPI and VMAPI have from the HTTP library that both are built on: the parameters of a request,
//! the answers of the router itself, and the headers of the others.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

/// The types of answers that servers of this library have, as a 406 names them.
pub(crate) const SERVES: &str =
    "Server accepts: application/json,text/plain,application/octet-stream,application/javascript";

/// Parameters by name, in the order they came.
pub(crate) type Params = Map<String, Value>;

/// Decodes a query or form text; a repeated name becomes an array, as do `name[]` and `name[0]`, and
/// `name[key]` an object. A value without a name is ignored.
pub(crate) fn from_query(query: &str) -> Params {
    let mut params = Params::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let key = name.strip_suffix(']').and_then(|name| name.split_once('['));
        let (name, value) = match key {
            Some((name, at)) if at.bytes().all(|b| b.is_ascii_digit()) => (name, json!([value])),
            Some((name, key)) => (name, json!({ key: value })),
            None => (name.as_ref(), json!(value)),
        };
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
pub(crate) fn falsy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The body of a request did not become parameters.
pub(crate) enum BadBody {
    /// It is not JSON; the text says why, as the library does.
    Syntax(String),
    /// It is a list, which takes the place of the parameters that the path gave.
    List,
    /// It is JSON, but neither an object nor a list.
    NotAnObject,
}

/// Adds the body to the parameters, if its type is known; a parameter already there wins.
pub(crate) fn merge_body(
    params: &mut Params,
    request: &Request<Bytes>,
    old_platform: bool,
) -> Result<(), BadBody> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let body = request.body();
    let fields = match kind.to_ascii_lowercase().as_str() {
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

/// Parses JSON; the error has the words of the runtime.
pub(crate) fn parse_json(body: &[u8], old_platform: bool) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        let at = if error.line() <= 1 {
            error.column().saturating_sub(1)
        } else {
            text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum::<usize>()
                + error.column().saturating_sub(1)
        };
        match text.as_bytes().get(at) {
            _ if error.is_eof() && !old_platform => "Unexpected end of JSON input".to_owned(),
            _ if error.is_eof() => "Unexpected end of input".to_owned(),
            Some(byte) if old_platform => format!("Unexpected token {}", char::from(*byte)),
            Some(byte) => {
                format!("Unexpected token {} in JSON at position {at}", char::from(*byte))
            }
            None => "Unexpected end of JSON input".to_owned(),
        }
    })
}

/// Returns true if the text is a UUID in lower case.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// Returns true if the version range of a request, if it has one, includes the server's.
pub(crate) fn version_fits(range: &str, server: [u32; 3]) -> bool {
    let range = range.trim();
    let digits = range.trim_start_matches(['~', '^', '=', 'v', ' ']);
    if range.is_empty() || range == "*" || range.starts_with(['>', '<']) {
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
pub(crate) fn asked_version(request: &Request<Bytes>) -> Option<&str> {
    let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok());
    header("accept-version").or(header("x-api-version"))
}

/// Returns a time as JSON texts have it.
pub(crate) fn iso(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// An answer with a body, or without one.
pub(crate) fn build(method: &Method, status: u16, body: Option<&Value>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(body) = body {
        let text = Bytes::from(body.to_string());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, text.len().into());
        if *method != Method::HEAD {
            *response.body_mut() = text;
        }
    }
    response
}

/// An answer of the router itself: no request id.
pub(crate) fn plain(method: &Method, status: u16, code: &str, message: &str) -> Response<Bytes> {
    build(method, status, Some(&json!({ "code": code, "message": message })))
}

/// 405: the route has these methods only.
pub(crate) fn not_allowed(method: &Method, allowed: &[&str]) -> Response<Bytes> {
    let message = format!("{method} is not allowed");
    let mut response = plain(method, 405, "MethodNotAllowedError", &message);
    if let Ok(allow) = allowed.join(", ").parse() {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// An answer of a handled route, with the headers that those have.
pub(crate) fn routed(
    request: &Request<Bytes>,
    server: &'static str,
    now_ms: i64,
    (status, body): (u16, Option<&Value>),
) -> Response<Bytes> {
    let mut response = build(request.method(), status, body);
    let headers = response.headers_mut();
    let sent = request.headers().get("request-id").or(request.headers().get("x-request-id"));
    let id = sent.cloned().or_else(|| uuid::Uuid::new_v4().to_string().parse().ok());
    if let Some(id) = id {
        headers.insert("x-request-id", id);
    }
    headers.insert(header::SERVER, HeaderValue::from_static(server));
    headers.insert("x-response-time", HeaderValue::from_static("1"));
    headers.insert("x-server-name", HeaderValue::from_static("mock"));
    let at = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    if let Ok(date) = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string().parse() {
        headers.insert(header::DATE, date);
    }
    response
}
