// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections that leave HTTP: an answer of 101 carries what serves its connection from then on (RFC 9110 §7.8).

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sdc_clients::http::Duplex;

type Serve = dyn FnOnce(Box<dyn Duplex>) -> BoxFuture<'static, ()> + Send;

/// What serves a connection after an answer of 101, in whose extensions it is. The shutdown ends it.
#[derive(Clone)]
pub struct Takeover(Arc<Mutex<Option<Box<Serve>>>>);

impl std::fmt::Debug for Takeover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Takeover")
    }
}

impl Takeover {
    /// The connection is served by this function.
    pub fn new(
        serve: impl FnOnce(Box<dyn Duplex>) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(serve)))))
    }
}

/// What a connection does after HTTP.
#[derive(Clone, Default)]
pub(super) struct Afterwards(Arc<Mutex<Option<(OnUpgrade, Takeover)>>>);

impl Afterwards {
    /// Has to be called before the request is answered.
    pub(super) fn of<B>(request: &mut Request<B>) -> OnUpgrade {
        hyper::upgrade::on(request)
    }

    /// Returns true if the connection leaves HTTP after this response.
    pub(super) fn follows<B>(&self, response: &Response<B>, upgrade: OnUpgrade) -> bool {
        let takeover = response.extensions().get::<Takeover>();
        let Some(takeover) =
            takeover.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS)
        else {
            return false;
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, takeover.clone()));
        true
    }

    /// Serves the connection until it ends, if it has left HTTP.
    pub(super) async fn serve(self) {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((upgrade, Takeover(serve))) = left else { return };
        let serve = serve.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((serve, io)) = serve.zip(upgrade.await.ok()) {
            serve(Box::new(TokioIo::new(io))).await;
        }
    }
}
