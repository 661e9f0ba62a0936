// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A transport of one agent that passes each request and each piece of the stream through the gate.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::Lines;
use serde_json::json;

use super::bugs::Bug;
use super::gate::{Gate, NAPI, To, VMAPI};

/// The wires of a new agent, to its node and to the world; those of older ones are dead.
pub(super) fn open(
    gate: &Gate,
    node: Arc<dyn Transport>,
    outside: Arc<dyn Transport>,
    memory: &Path,
) -> (Arc<dyn Transport>, Arc<dyn Transport>) {
    let life = gate.begin(memory);
    let wire = |inner, to| Arc::new(Gated { inner, to, life, gate: gate.clone() });
    (wire(node, To::Node), wire(outside, To::Outside))
}

/// One wire of one agent.
struct Gated {
    inner: Arc<dyn Transport>,
    to: To,
    life: u64,
    gate: Gate,
}

impl Gated {
    fn hidden(request: &Request) -> Error {
        Error::connect(&request.method, request.target(), "the node is not to be seen")
    }

    /// What a deliberate bug makes of a request, and of its answer.
    fn worsen(&self, request: &mut Request) -> bool {
        let of_a_vm = self.gate.writes_to() == NAPI
            && request.url.host_str() == Some(VMAPI)
            && request.url.path().starts_with("/vms/");
        if of_a_vm && self.gate.bug() == Some(Bug::MeddleWithVms) {
            request.method = Method::PUT;
        }
        of_a_vm && self.gate.bug() == Some(Bug::TrustA404)
    }
}

impl Transport for Gated {
    fn send(&self, mut request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let trusts = self.worsen(&mut request);
            let Some(nth) = self.gate.enter(self.life, self.to, &request) else {
                return std::future::pending().await;
            };
            if self.to == To::Node && self.gate.sight(&request).is_err() {
                return Err(Self::hidden(&request));
            }
            if let Some(answer) = self.gate.past(nth, self.to, &request).await {
                return answer;
            }
            if self.to == To::Outside && request.method != Method::GET {
                self.gate.remember_writes();
            }
            let _busy = self.gate.busy();
            let uuid = request.url.path().trim_start_matches("/vms/").to_owned();
            let mut answer = self.inner.send(request).await;
            if let (true, Ok(known)) = (trusts, &mut answer)
                && known.status == StatusCode::NOT_FOUND
            {
                let vm = json!({"uuid": uuid, "state": "destroyed"});
                (known.status, known.body) = (StatusCode::OK, Bytes::from(vm.to_string()));
            }
            if !self.gate.leave(self.life, nth) {
                return std::future::pending().await;
            }
            answer
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let Some(nth) = self.gate.enter(self.life, self.to, &request) else {
                return std::future::pending().await;
            };
            match self.gate.sight(&request) {
                Ok(()) => {}
                Err(Some(gone)) => return Ok(gone),
                Err(None) => return Err(Self::hidden(&request)),
            }
            let asked = request.url.query_pairs().find(|(key, _)| key == "epoch");
            let mut epoch = asked.map(|(_, epoch)| epoch.into_owned()).unwrap_or_default();
            let opened = self.inner.stream(request).await?;
            if !self.gate.leave(self.life, nth) {
                return std::future::pending().await;
            }
            let (gate, life, mut lines) = (self.gate.clone(), self.life, Lines::new(64 << 20));
            let body = opened.body.take_while(move |piece| {
                let piece = piece.as_ref().ok();
                let given = piece.is_none_or(|p| gate.give(life, &mut lines, &mut epoch, p));
                std::future::ready(given)
            });
            Ok(StreamResponse { body: body.boxed(), ..opened })
        })
    }
}
