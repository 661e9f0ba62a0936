// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The transport of an agent to the vminfod of its node.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::INCOMPLETE;
use tokio::time::Instant;
use vminfod::http::Api;

use super::bugs::Bug;
use mocks::transport::in_time;

/// The vminfod of one node, when it runs.
#[derive(Clone, Default)]
pub struct NodeWire {
    api: Arc<Mutex<Option<Api>>>,
    /// When the node gave whole views.
    views: Arc<Mutex<Vec<Instant>>>,
    /// The first whole view, for an agent that lives on it.
    remembered: Arc<Mutex<Option<Response>>>,
    bug: Option<Bug>,
}

impl NodeWire {
    /// A wire that nobody answers yet.
    pub fn new(bug: Option<Bug>) -> Self {
        Self { bug, ..Self::default() }
    }

    /// The wire of another agent to the same vminfod; no deliberate bug is on it.
    pub(super) fn of_another(&self) -> Self {
        Self { api: self.api.clone(), ..Self::default() }
    }

    /// Another vminfod answers from now on, or none.
    pub fn connect(&self, api: Option<Api>) {
        *self.api.lock().unwrap_or_else(PoisonError::into_inner) = api;
    }

    /// Who answers now.
    pub fn api(&self) -> Option<Api> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When whole views were read since then.
    pub(super) fn views_since(&self, since: Instant) -> Vec<Instant> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.iter().copied().filter(|at| *at >= since).collect()
    }

    async fn exchange(&self, request: Request) -> Result<StreamResponse, Error> {
        let (method, mut target) = (request.method.clone(), request.target());
        if self.bug == Some(Bug::CountOnSysevents) {
            target = target.replace("sync=true", "sync=").replace("sync=zones", "sync=");
        }
        let Some(api) = self.api() else {
            return Err(Error::connect(&method, target, "vminfod does not run"));
        };
        let mut forwarded = http::Request::new(String::new());
        *forwarded.method_mut() = request.method;
        *forwarded.uri_mut() = target
            .parse()
            .map_err(|_| Error::broken(&method, target.as_str(), "the target is no URI"))?;
        *forwarded.headers_mut() = request.headers;
        let (mut parts, body) = api.answer(forwarded).await.into_parts();
        if self.bug == Some(Bug::IgnoreIncomplete) {
            parts.headers.remove(INCOMPLETE);
        }
        let body = body.into_data_stream();
        let body = body.map(move |piece| {
            piece.map_err(|error| Error::broken(&method, target.as_str(), error.to_string()))
        });
        Ok(StreamResponse { status: parts.status, headers: parts.headers, body: body.boxed() })
    }
}

impl Transport for NodeWire {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(in_time(request, async |request| {
            let (view, began) = (request.target() == "/vms?sync=zones", Instant::now());
            let remembers = view && self.bug == Some(Bug::RememberViews);
            let known = || self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            if let (true, Some(answer)) = (remembers, known().clone()) {
                return Ok(answer);
            }
            let StreamResponse { status, headers, mut body } = self.exchange(request).await?;
            let mut bytes = Vec::new();
            while let Some(piece) = body.next().await {
                bytes.extend_from_slice(&piece?);
            }
            let answer = Response { status, headers, body: Bytes::from(bytes) };
            if view && status.is_success() {
                self.views.lock().unwrap_or_else(PoisonError::into_inner).push(began);
            }
            if remembers {
                *known() = Some(answer.clone());
            }
            Ok(answer)
        }))
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(self.exchange(request))
    }
}
