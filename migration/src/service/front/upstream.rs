// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMAPI behind this service: requests go to it as they came, and its answers come back as they are sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::http::Body;
use futures_util::StreamExt;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Response};
use sdc_clients::http::Transport;
use url::Url;

use super::answer::Answer;
use crate::service::refused::Refused;

/// How long VMAPI may take to begin its answer: it asks nodes, which may take minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Headers that belong to a connection, not to a message.
const OF_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The VMAPI behind this service.
#[derive(Clone)]
pub struct Upstream {
    base: Url,
    transport: Arc<dyn Transport>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Returns the VMAPI at this address.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(base: &str, transport: Arc<dyn Transport>) -> Result<Upstream, url::ParseError> {
        Ok(Upstream { base: Url::parse(base)?, transport })
    }

    /// Sends a request on.
    pub async fn send(&self, parts: Parts, body: Bytes) -> Answer {
        let mut url = self.base.clone();
        let prefix = self.base.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{prefix}{}", parts.uri.path()));
        url.set_query(parts.uri.query());
        let mut headers = carried(&parts.headers);
        headers.remove(CONTENT_LENGTH);
        let body = Some(body).filter(|body| !body.is_empty());
        let request = sdc_clients::http::Request {
            method: parts.method,
            url,
            headers,
            body,
            timeout: PATIENCE,
            body_cap: usize::MAX,
        };
        let _permit = self.transport.admit().await;
        let answer = self.transport.stream(request).await.map_err(|error| {
            tracing::warn!(reason = %error, "VMAPI does not answer");
            Refused::coded(503, "ServiceUnavailableError", "VMAPI does not answer")
        })?;
        let body = answer.body.map(|piece| piece.map_err(axum::BoxError::from));
        let mut response = Response::new(Body::from_stream(body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = carried(&answer.headers);
        Ok(response)
    }
}

/// Returns the headers that are not the connection's.
fn carried(headers: &HeaderMap) -> HeaderMap {
    let mut carried = headers.clone();
    for name in &OF_CONNECTION {
        carried.remove(name);
    }
    carried
}
