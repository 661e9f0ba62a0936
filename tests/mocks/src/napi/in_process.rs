// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock as a transport of the clients: no socket, so that paused time works.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Method;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};

use crate::faults::{Mock, Reply};

/// A transport whose other end is a mock in the same process.
#[derive(Clone)]
pub struct InProcess(Arc<dyn Mock>);

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}

impl InProcess {
    /// A transport to the mock NAPI with this store, or to any other mock.
    pub fn new(mock: impl Mock) -> Self {
        Self(Arc::new(mock))
    }
}

impl Transport for InProcess {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let (method, target, after) =
                (request.method.clone(), request.target(), request.timeout);
            let answered = tokio::time::timeout(after, self.exchange(request)).await;
            answered.unwrap_or_else(|_| {
                Err(Error::timed_out(sdc_clients::Phase::Answer, &method, target.as_str(), after))
            })
        })
    }
}

impl InProcess {
    async fn exchange(&self, request: Request) -> Result<Response, Error> {
        let (method, target): (Method, String) = (request.method.clone(), request.target());
        let broken = |what: &str| Error::broken(&method, target.as_str(), what);
        let mut forwarded = http::Request::new(request.body.unwrap_or_default());
        *forwarded.method_mut() = request.method.clone();
        *forwarded.uri_mut() = target.parse().map_err(|_| broken("the address is not a URI"))?;
        *forwarded.headers_mut() = request.headers;
        match self.0.handle(forwarded).await {
            Reply::Full(response) => {
                let (parts, body) = response.into_parts();
                Ok(Response { status: parts.status, headers: parts.headers, body })
            }
            Reply::Truncated(..) => Err(broken("the connection closed inside the body")),
            Reply::Cut => Err(broken("the connection closed before an answer")),
        }
    }
}
