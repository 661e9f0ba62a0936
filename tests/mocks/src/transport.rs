// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Transports for tests under a paused clock: a mock without a socket, and decorators of any
//! transport that fail, hang or record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use http::Method;
use sdc_clients::http::{Request, Response, StreamResponse, Switched, Transport};
use sdc_clients::{Error, Phase};

use crate::faults::{Mock, Reply, Takeover};

/// How much of an upgraded connection may be under way.
const PIPE: usize = 64 << 10;

/// Awaits the answer to a request, at most for the time that the request has.
pub async fn in_time<F>(
    request: Request,
    exchange: impl FnOnce(Request) -> F,
) -> Result<Response, Error>
where
    F: Future<Output = Result<Response, Error>>,
{
    let (method, target, after) = (request.method.clone(), request.target(), request.timeout);
    let late = |_| Err(Error::timed_out(Phase::Answer, &method, target.as_str(), after));
    tokio::time::timeout(after, exchange(request)).await.unwrap_or_else(late)
}

/// A transport whose other end is a mock in the same process.
#[derive(Clone)]
pub struct InProcess(Arc<dyn Mock>);

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}

impl InProcess {
    /// A transport to this mock.
    pub fn new(mock: impl Mock) -> Self {
        Self::shared(Arc::new(mock))
    }

    /// A transport to a mock that others have too.
    pub fn shared(mock: Arc<dyn Mock>) -> Self {
        Self(mock)
    }
}

impl Transport for InProcess {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(in_time(request, |request| self.exchange(request)))
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        Box::pin(async move {
            let (mut parts, body) = self.answer(request).await?.into_parts();
            let Some(takeover) = parts.extensions.remove::<Takeover>() else {
                let (status, headers) = (parts.status, parts.headers);
                return Ok(Switched::Stays(Response { status, headers, body }));
            };
            let (ours, theirs) = tokio::io::duplex(PIPE);
            tokio::spawn(takeover.serve(Box::new(theirs)));
            Ok(Switched::Left(parts.headers, Box::new(ours)))
        })
    }
}

impl InProcess {
    async fn exchange(&self, request: Request) -> Result<Response, Error> {
        let (parts, body) = self.answer(request).await?.into_parts();
        Ok(Response { status: parts.status, headers: parts.headers, body })
    }

    async fn answer(&self, request: Request) -> Result<http::Response<bytes::Bytes>, Error> {
        let (method, target): (Method, String) = (request.method.clone(), request.target());
        let broken = |what: &str| Error::broken(&method, target.as_str(), what);
        let mut forwarded = http::Request::new(request.body.unwrap_or_default());
        *forwarded.method_mut() = request.method.clone();
        *forwarded.uri_mut() = target.parse().map_err(|_| broken("the address is not a URI"))?;
        *forwarded.headers_mut() = request.headers;
        match self.0.handle(forwarded).await {
            Reply::Full(response) => Ok(response),
            Reply::Truncated(..) => Err(broken("the connection closed inside the body")),
            Reply::Cut => Err(broken("the connection closed before an answer")),
        }
    }
}

/// What becomes of a request that does not reach the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection is refused.
    Refused,
    /// Nothing answers: the request ends at its own deadline.
    Hangs,
}

type Judge = dyn Fn(&Request) -> Option<Failure> + Send + Sync;

/// A transport that fails, or hangs, where a function says so.
pub struct Failing {
    inner: Arc<dyn Transport>,
    judge: Box<Judge>,
}

impl Failing {
    /// Requests for which `judge` returns `None` go to `inner`.
    pub fn new(
        inner: Arc<dyn Transport>,
        judge: impl Fn(&Request) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, judge: Box::new(judge) }
    }

    async fn pass(&self, request: &Request) -> Result<(), Error> {
        let (method, target, after) = (&request.method, request.target(), request.timeout);
        match (self.judge)(request) {
            None => Ok(()),
            Some(Failure::Refused) => Err(Error::connect(method, target, "refused")),
            Some(Failure::Hangs) => {
                tokio::time::sleep(after).await;
                Err(Error::timed_out(Phase::Answer, method, target, after))
            }
        }
    }
}

impl Transport for Failing {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            self.pass(&request).await?;
            self.inner.send(request).await
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            self.pass(&request).await?;
            self.inner.stream(request).await
        })
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        Box::pin(async move {
            self.pass(&request).await?;
            self.inner.upgrade(request).await
        })
    }
}

/// A transport that keeps every request, in the order in which they were made.
pub struct Recorded {
    inner: Arc<dyn Transport>,
    requests: Mutex<Vec<Request>>,
}

impl Recorded {
    /// Nothing recorded yet.
    pub fn new(inner: Arc<dyn Transport>) -> Self {
        Self { inner, requests: Mutex::default() }
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.kept().clone()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Recorded {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        self.kept().push(request.clone());
        self.inner.send(request)
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        self.kept().push(request.clone());
        self.inner.stream(request)
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        self.kept().push(request.clone());
        self.inner.upgrade(request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdc_clients::{Class, Http, Phase};

    use super::*;
    use crate::vmapi::Store;

    const VM: &str = "40000000-0000-4000-8000-000000000001";

    #[tokio::test(start_paused = true)]
    async fn requests_fail_hang_and_are_recorded() {
        let store = Store::default();
        store.set(VM, "running", None);
        let failing =
            Failing::new(Arc::new(InProcess::new(store)), |request| match request.url.path() {
                "/vms/refused" => Some(Failure::Refused),
                "/vms/hangs" => Some(Failure::Hangs),
                _ => None,
            });
        let recorded = Arc::new(Recorded::new(Arc::new(failing)));
        let transport: Arc<dyn Transport> = recorded.clone();
        let http = Http::with_transport("http://vmapi.sim", "test/1", transport).unwrap();
        let get = async |uuid: &str| {
            let call = sdc_clients::http::Call::get(&["vms", uuid]);
            http.execute(call.timeout(Duration::from_secs(9))).await.map_err(|e| e.class())
        };
        assert!(get(VM).await.is_ok());
        assert_eq!(get("refused").await.unwrap_err(), Class::Connect);
        let began = tokio::time::Instant::now();
        assert_eq!(get("hangs").await.unwrap_err(), Class::Timeout(Phase::Answer));
        assert!(began.elapsed() >= Duration::from_secs(9));
        let paths: Vec<String> = recorded.requests().iter().map(Request::target).collect();
        assert_eq!(
            (&*paths[0], paths.iter().any(|path| path == "/vms/hangs")),
            (&*format!("/vms/{VM}"), true)
        );
    }
}
