// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reading a success: the JSON kind that was promised, the etag, the server's clock.

use ::http::{HeaderMap, Method, StatusCode, header};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::depth;
use super::exchange::Response;
use crate::error::Error;

/// A value together with what the server said about this reading of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// The etag, byte for byte; `None` where the server sends none.
    pub etag: Option<String>,
    /// The server's clock when it answered.
    pub date: Option<Timestamp>,
}

/// A successful answer with the request it belongs to.
#[derive(Debug, Clone)]
pub struct Reply {
    method: Method,
    target: String,
    request_id: String,
    attempts: u32,
    response: Response,
}

impl Reply {
    pub(super) fn new(
        method: Method,
        target: String,
        request_id: String,
        attempts: u32,
        response: Response,
    ) -> Reply {
        Reply { method, target, request_id, attempts, response }
    }

    /// The status, a success.
    pub fn status(&self) -> StatusCode {
        self.response.status
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.response.headers
    }

    /// The body as it came.
    pub fn body(&self) -> &[u8] {
        &self.response.body
    }

    /// How often the request was sent.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The etag, byte for byte.
    pub fn etag(&self) -> Option<String> {
        self.text(header::ETAG.as_str()).map(str::to_owned)
    }

    /// The server's clock.
    pub fn date(&self) -> Option<Timestamp> {
        let text = self.text(header::DATE.as_str())?;
        jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
    }

    /// A header as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.response.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The error of an answer that is not what was `expected`.
    pub fn unexpected(&self, expected: &str) -> Error {
        let error = Error::protocol(
            &self.method,
            self.target.as_str(),
            Some(self.response.status),
            expected,
            &self.response.body,
        );
        if let Some(text) = error.logged_text() {
            let (method, target) = (&self.method, &self.target);
            tracing::warn!(%method, target, text, expected, "cannot read a service's answer");
        }
        let server = self.text("x-request-id").unwrap_or(&self.request_id);
        error.with_request_id(server).with_attempts(self.attempts)
    }

    /// The body as a JSON object that is not empty.
    pub fn object(&self) -> Result<Map<String, Value>, Error> {
        self.check_depth()?;
        match serde_json::from_slice(&self.response.body) {
            Ok(Value::Object(map)) if !map.is_empty() => Ok(map),
            Ok(_) => Err(self.unexpected("a JSON object")),
            Err(e) => Err(self.unexpected("a JSON object").with_source(e)),
        }
    }

    /// The body as the type that `expected` describes.
    pub fn json<T: DeserializeOwned>(&self, expected: &str) -> Result<T, Error> {
        self.check_depth()?;
        serde_json::from_slice(&self.response.body)
            .map_err(|e| self.unexpected(expected).with_source(e))
    }

    fn check_depth(&self) -> Result<(), Error> {
        if depth::too_deep(&self.response.body) {
            return Err(self.unexpected(&format!("JSON at most {} deep", depth::JSON_DEPTH)));
        }
        Ok(())
    }

    /// The body as a value of one record, with etag and date.
    pub fn versioned<T: DeserializeOwned>(&self, expected: &str) -> Result<Versioned<T>, Error> {
        let value = self.json(expected)?;
        Ok(Versioned { value, etag: self.etag(), date: self.date() })
    }

    /// Fails unless the status is `wanted`: some servers answer 200 and do nothing.
    pub fn require(&self, wanted: StatusCode) -> Result<(), Error> {
        if self.response.status == wanted {
            return Ok(());
        }
        Err(self.unexpected(&format!("status {}", wanted.as_u16())))
    }
}
