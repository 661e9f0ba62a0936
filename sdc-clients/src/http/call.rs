// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a client wants to send, before it is a request: path segments, set
//! query values, a JSON body and a precondition.

use std::time::Duration;

use ::http::header::{self, HeaderValue};
use ::http::{HeaderMap, Method};
use serde::Serialize;
use url::Url;

use super::exchange::{BODY_CAP, Request, TOTAL_TIMEOUT};
use crate::error::{Class, Error};

/// Under which condition a write may be applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Whatever the record is now.
    #[default]
    None,
    /// Only if the record still has this etag, sent byte for byte as it was received.
    IfMatch(String),
}

/// One logical call.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    segments: Vec<String>,
    query: Vec<(String, String)>,
    body: Option<Result<Vec<u8>, String>>,
    precondition: Precondition,
    timeout: Duration,
    body_cap: usize,
    /// Which errors go to the caller at once.
    pub(super) is_final: fn(&Error) -> bool,
}

impl Call {
    /// A call of `method` on the path made of `segments`, each percent-encoded.
    pub fn new(method: Method, segments: &[&str]) -> Call {
        Call {
            method,
            segments: segments.iter().map(|s| (*s).to_owned()).collect(),
            query: Vec::new(),
            body: None,
            precondition: Precondition::None,
            timeout: TOTAL_TIMEOUT,
            body_cap: BODY_CAP,
            is_final: |_| false,
        }
    }

    /// A GET.
    pub fn get(segments: &[&str]) -> Call {
        Call::new(Method::GET, segments)
    }

    /// Adds a query value; an empty one is left out, since servers choke on it.
    pub fn query(mut self, key: &str, value: impl ToString) -> Call {
        let value = value.to_string();
        if !value.is_empty() {
            self.query.push((key.to_owned(), value));
        }
        self
    }

    /// Adds a list as one comma-separated value; empty lists and elements are left out.
    pub fn query_list(self, key: &str, values: &[String]) -> Call {
        let set: Vec<&str> = values.iter().map(String::as_str).filter(|v| !v.is_empty()).collect();
        self.query(key, set.join(","))
    }

    /// Adds a query value if it is set.
    pub fn query_opt(self, key: &str, value: Option<impl ToString>) -> Call {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }

    /// Sends `body` as JSON.
    pub fn json(mut self, body: &impl Serialize) -> Call {
        self.body = Some(serde_json::to_vec(body).map_err(|e| e.to_string()));
        self
    }

    /// Sends the request under a precondition.
    pub fn precondition(mut self, precondition: Precondition) -> Call {
        self.precondition = precondition;
        self
    }

    /// Replaces the deadline.
    pub fn timeout(mut self, timeout: Duration) -> Call {
        self.timeout = timeout;
        self
    }

    /// Replaces the longest body to read.
    pub fn body_cap(mut self, bytes: usize) -> Call {
        self.body_cap = bytes;
        self
    }

    /// These errors are not retried but go to the caller at once, who will ask for less.
    pub fn final_if(mut self, is_final: fn(&Error) -> bool) -> Call {
        self.is_final = is_final;
        self
    }

    pub(super) fn into_request(self, base: &Url) -> Result<Request, Error> {
        let shown = format!("/{}", self.segments.join("/"));
        let bad = |what: &str| Error::new(Class::Request, &self.method, shown.as_str(), what);
        let mut url = base.clone();
        if self.segments.iter().any(|s| s.is_empty() || s == "." || s == "..") {
            return Err(bad("a path segment is empty or a dot"));
        }
        match url.path_segments_mut() {
            Ok(mut path) => {
                path.pop_if_empty().extend(&self.segments);
            }
            Err(()) => return Err(bad("the base URL has no path")),
        }
        url.set_fragment(None);
        url.set_query(None);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let mut headers = HeaderMap::new();
        if let Precondition::IfMatch(etag) = &self.precondition {
            let value = HeaderValue::from_str(etag)
                .map_err(|e| bad("the etag is not a header value").with_source(e))?;
            headers.insert(header::IF_MATCH, value);
        }
        let body = match self.body {
            Some(Ok(body)) => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Some(body.into())
            }
            Some(Err(why)) => return Err(bad(&format!("the body cannot be written: {why}"))),
            None => None,
        };
        Ok(Request {
            method: self.method,
            url,
            headers,
            body,
            timeout: self.timeout,
            body_cap: self.body_cap,
            peer: None,
        })
    }
}
