// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One error type for all services. An [`Error`] names its request, keeps everything the server sent, and
//! decides whether the request may be sent again ([`Error::is_retryable`]) and whether it may have been
//! applied ([`Error::may_have_applied`]).
//!
//! Its sentence (`Display`) has route, status and `code`, and no text of the peer's: it reaches pages that others read.
//! The peer's text is in [`Error::peer_text`], and in the log.

mod class;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

pub use class::{Class, Phase};
use class::{classify, is_read};

/// How many bytes of a peer's text an error keeps.
const BODY_PREFIX: usize = 512;
/// The longest `code`.
const LONGEST_CODE: usize = 64;
/// How many wrong fields [`Error::message_with_fields`] names.
const MOST_FIELDS: usize = 8;
/// A longer body is no service's answer: only its beginning is kept.
const LONGEST_ANSWER: usize = 64 << 10;

/// A failed request.
#[derive(Clone)]
pub struct Error(Box<Detail>);

#[derive(Clone)]
struct Detail {
    class: Class,
    phase: Option<Phase>,
    method: Method,
    path: String,
    status: Option<u16>,
    code: Option<String>,
    message: String,
    /// The message is the peer's.
    is_theirs: bool,
    /// The beginning of a body that is not what was promised.
    body: Option<String>,
    errors: Vec<Value>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
    attempts: u32,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of the given class about `method path`.
    pub fn new(
        class: Class,
        method: &Method,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Error {
        Error(Box::new(Detail {
            class,
            phase: None,
            method: method.clone(),
            path: path.into(),
            status: None,
            code: None,
            message: message.into(),
            is_theirs: false,
            body: None,
            errors: Vec::new(),
            request_id: None,
            retry_after: None,
            attempts: 1,
            source: None,
        }))
    }

    /// The connection could not be made; nothing was sent.
    pub fn connect(method: &Method, path: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(Class::Connect, method, path, message)
    }

    /// The connection broke after the request was sent. For a write the
    /// outcome is unknown.
    pub fn broken(method: &Method, path: impl Into<String>, message: impl Into<String>) -> Error {
        let class = if is_read(method) { Class::Interrupted } else { Class::UnknownOutcome };
        Error::new(class, method, path, message)
    }

    /// The time ran out in `phase`. For a write that had been sent the outcome is unknown.
    pub fn timed_out(
        phase: Phase,
        method: &Method,
        path: impl Into<String>,
        after: Duration,
    ) -> Error {
        let class = if phase == Phase::Connect || is_read(method) {
            Class::Timeout(phase)
        } else {
            Class::UnknownOutcome
        };
        let message = format!("timed out after {after:?} while {}", phase.as_str());
        let mut error = Error::new(class, method, path, message);
        error.0.phase = Some(phase);
        error
    }

    /// A success whose body is not what was promised; keeps the start of it.
    pub fn protocol(
        method: &Method,
        path: impl Into<String>,
        status: Option<StatusCode>,
        expected: &str,
        body: &[u8],
    ) -> Error {
        let message = match body.len() {
            0 => format!("expected {expected}, got an empty body"),
            length => format!("expected {expected}, got {length} bytes of something else"),
        };
        let mut error = Error::new(Class::Protocol, method, path, message);
        error.0.status = status.map(|s| s.as_u16());
        error.0.body = (!body.is_empty()).then(|| prefix(body));
        error
    }

    /// What a status other than success means, with everything the server sent.
    pub fn from_answer(
        method: &Method,
        path: impl Into<String>,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Error {
        let (mut code, mut message, mut errors) = (None, None, Vec::new());
        let parsed = (body.len() <= LONGEST_ANSWER).then(|| serde_json::from_slice::<Value>(body));
        if let Some(Ok(Value::Object(mut map))) = parsed {
            code = map.get("code").and_then(Value::as_str).map(str::to_owned);
            message = map.get("message").and_then(Value::as_str).map(str::to_owned);
            if let Some(Value::Array(list)) = map.remove("errors") {
                errors = list;
            }
        }
        let message = message.unwrap_or_else(|| prefix(body));
        let class = classify(status, code.as_deref(), &message);
        let mut error = Error::new(class, method, path, clipped(message));
        error.0.is_theirs = true;
        error.0.status = Some(status.as_u16());
        error.0.code = code.map(coded);
        error.0.errors = errors;
        error.0.request_id = text_header(headers, "x-request-id").map(clipped);
        error.0.retry_after = text_header(headers, "retry-after")
            .and_then(|s| s.trim().parse().ok())
            .map(Duration::from_secs);
        error
    }

    /// Attaches the error beneath this one.
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Attaches the request id that was sent, unless the server named its own.
    pub fn with_request_id(mut self, id: &str) -> Error {
        self.0.request_id.get_or_insert_with(|| id.to_owned());
        self
    }

    /// Notes how often the request was tried in all.
    pub fn with_attempts(mut self, attempts: u32) -> Error {
        self.0.attempts = attempts;
        self
    }

    /// The kind of the failure.
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// Returns true if sending the same request again is safe and may help. A write is sent again only if
    /// it was certainly not sent.
    pub fn is_retryable(&self) -> bool {
        match self.0.class {
            Class::Connect | Class::Timeout(Phase::Connect) => true,
            Class::Timeout(_) | Class::Interrupted | Class::Unavailable | Class::Server => {
                is_read(&self.0.method)
            }
            _ => false,
        }
    }

    /// Whether a write may have happened although it failed: read again and decide again.
    pub fn may_have_applied(&self) -> bool {
        if is_read(&self.0.method) {
            return false;
        }
        match self.0.class {
            Class::UnknownOutcome | Class::Server | Class::Protocol => true,
            // 502 and 504 are a gateway's: the server behind it may have applied the write.
            Class::Unavailable => matches!(self.0.status, Some(502 | 504)),
            _ => false,
        }
    }

    /// The step in which the time ran out, for a write whose outcome is unknown as well.
    pub fn phase(&self) -> Option<Phase> {
        self.0.phase
    }

    /// The method of the failed request.
    pub fn method(&self) -> &Method {
        &self.0.method
    }

    /// Path and query of the failed request.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The HTTP status, if an answer came.
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The server's `code`, if it sent one.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// The server's message, or our own words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the beginning of the peer's text, if it sent one: its message and what it says of each field, or a body
    /// that is not what was promised. It is for logs and for the user who made the request.
    pub fn peer_text(&self) -> Option<String> {
        if self.0.is_theirs { Some(self.message_with_fields()) } else { self.0.body.clone() }
    }

    /// Returns what an operator has to know, with the request behind it: the service's reason where its answer has a
    /// code, or how the time ran out. A body without a code is nobody's words.
    pub fn in_words(&self) -> String {
        let request =
            format!("{} {}", self.0.method, self.0.path.split('?').next().unwrap_or_default());
        match (self.peer_text().filter(|_| self.code().is_some()), self.0.status) {
            (Some(reason), Some(status)) => format!("{reason} ({request}, {status})"),
            (Some(reason), None) => format!("{reason} ({request})"),
            (None, None) if self.0.phase.is_some() => format!("{} ({request})", self.0.message),
            _ => self.to_string(),
        }
    }

    /// Returns the same for a log. What looks like a service's data is left out: metadata may be in it.
    pub(crate) fn logged_text(&self) -> Option<String> {
        let text = self.peer_text()?;
        let is_data = text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[', '"']);
        Some(if is_data { "data, which is not logged".to_owned() } else { text })
    }

    /// Returns the message and, for each of the first fields in `errors[]`, the field with its message.
    pub fn message_with_fields(&self) -> String {
        let field = |error: &Value| {
            let (field, message) = (error["field"].as_str()?, error["message"].as_str()?);
            Some(clipped(format!("{field}: {message}")))
        };
        let fields: Vec<String> =
            self.0.errors.iter().filter_map(field).take(MOST_FIELDS).collect();
        match fields.is_empty() {
            true => self.0.message.clone(),
            false => format!("{} ({})", self.0.message, fields.join("; ")),
        }
    }

    /// The server's `errors[]`, as sent.
    pub fn errors(&self) -> &[Value] {
        &self.0.errors
    }

    /// The request id to look for in the server's log.
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// How long the server asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How often the request was tried.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The thing asked for is not there.
    pub fn is_not_found_resource(&self) -> bool {
        self.0.class == Class::NotFoundResource
    }

    /// This server lacks the route: a missing capability, not a missing thing.
    pub fn is_not_found_route(&self) -> bool {
        self.0.class == Class::NotFoundRoute
    }

    /// The etag did not match: read again.
    pub fn is_precondition_failed(&self) -> bool {
        self.0.class == Class::Precondition
    }

    /// Returns true if the server refuses only values of fields that were not sent because they exist already: the
    /// record was written by another at the same time. So NAPI answers a PUT of a NIC that overlaps one of its address.
    pub fn is_duplicate_of_unsent(&self, sent: &[&str]) -> bool {
        let is_unsent = |error: &Value| {
            let field = error.get("field").and_then(Value::as_str);
            error.get("code").and_then(Value::as_str) == Some("Duplicate")
                && field.is_some_and(|field| !sent.contains(&field))
        };
        self.status() == Some(422)
            && !self.0.errors.is_empty()
            && self.0.errors.iter().all(is_unsent)
    }

    /// The time ran out, in whatever phase.
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.class, Class::Timeout(_))
    }

    /// The parameters that the server says it does not know, if that is what it says.
    pub fn unknown_parameters(&self) -> Option<Vec<&str>> {
        let mut found = None;
        for element in &self.0.errors {
            if element.get("code").and_then(Value::as_str) != Some("UnknownParameters") {
                continue;
            }
            let names: &mut Vec<&str> = found.get_or_insert_default();
            match element.get("field") {
                Some(Value::Array(fields)) => names.extend(fields.iter().filter_map(Value::as_str)),
                Some(Value::String(field)) => names.push(field),
                _ => {}
            }
        }
        found
    }
}

fn text_header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

/// Returns the beginning of a peer's text.
fn clipped(text: String) -> String {
    if text.len() <= BODY_PREFIX { text } else { prefix(text.as_bytes()) }
}

/// Returns a code of a peer's; what is none is not one.
fn coded(text: String) -> String {
    let is_code = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    let is_one = text.len() <= LONGEST_CODE && text.chars().all(is_code);
    if is_one { text } else { "(no code)".to_owned() }
}

fn prefix(body: &[u8]) -> String {
    let cut = body.get(..BODY_PREFIX).unwrap_or(body);
    let mut text = String::from_utf8_lossy(cut).trim().to_owned();
    if body.len() > cut.len() {
        text.push('…');
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = &self.0;
        write!(f, "{} {}: {}", d.method, d.path, d.class.as_str())?;
        if let Some(status) = d.status {
            write!(f, ", status {status}")?;
        }
        if let Some(code) = &d.code {
            write!(f, " {code}")?;
        }
        if !d.message.is_empty() && !d.is_theirs {
            write!(f, ": {}", d.message)?;
        }
        if d.attempts > 1 {
            write!(f, " (tried {} times)", d.attempts)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("class", &self.0.class)
            .field("method", &self.0.method)
            .field("path", &self.0.path)
            .field("status", &self.0.status)
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("body", &self.0.body)
            .field("errors", &self.0.errors)
            .field("request_id", &self.0.request_id)
            .field("attempts", &self.0.attempts)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_service_is_in_no_log() {
        let vm = br#"[{"uuid": "u", "customer_metadata": {"root_pw": "secret"}"#;
        let (get, get_path) = (&Method::GET, "http://vmapi/vms");
        let odd = |body: &[u8]| {
            let broken = Error::protocol(get, get_path, Some(StatusCode::OK), "a list", body);
            let failed = StatusCode::INTERNAL_SERVER_ERROR;
            let refused = Error::from_answer(get, get_path, failed, &HeaderMap::new(), body);
            [broken, refused].map(|error| error.logged_text().unwrap())
        };
        for body in [&vm[..], &vm[1..], b" \n[{", b"\"root_pw\"", "\u{feff}{".as_bytes()] {
            assert_eq!(odd(body), ["data, which is not logged"; 2]);
        }
        assert_eq!(odd(b"<html>no</html>"), ["<html>no</html>"; 2]);
    }
}
