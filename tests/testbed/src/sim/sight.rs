// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node as its vm-agent sees it: as it is, unless a deliberate bug takes hidden VMs for others.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::StatusCode;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::Lines;
use serde_json::{Value, json};

use super::bugs::Bug;
use super::wire::NodeWire;

/// The wire of a vm-agent to its node.
pub(super) struct Sight {
    wire: NodeWire,
    bug: Option<Bug>,
}

impl Sight {
    /// The wire, with a deliberate bug or none.
    pub(super) fn new(wire: NodeWire, bug: Option<Bug>) -> Self {
        Self { wire, bug }
    }
}

/// The same, with nothing in it hidden.
fn shown(text: &[u8]) -> Bytes {
    String::from_utf8_lossy(text).replace("do_not_inventory", "do_inventory").into()
}

fn is_hidden(vm: &Value) -> bool {
    vm["do_not_inventory"] == true
}

/// The answer of a node that does not know hidden VMs.
fn without_hidden(mut answer: Response) -> Response {
    match serde_json::from_slice(&answer.body) {
        Ok(Value::Array(vms)) => {
            let vms = vms.into_iter().filter(|vm| !is_hidden(vm));
            answer.body = Value::from_iter(vms).to_string().into();
        }
        Ok(vm) if is_hidden(&vm) => {
            answer.status = StatusCode::NOT_FOUND;
            answer.body =
                json!({"code": "ResourceNotFound", "message": "no VM"}).to_string().into();
        }
        _ => {}
    }
    answer
}

/// The stream of a node on which VMs of this kind are gone.
pub(super) fn stream_without(
    opened: StreamResponse,
    is_gone: impl Fn(&Value) -> bool + Send + Sync + 'static,
) -> StreamResponse {
    let lines = Mutex::new(Lines::new(64 << 20));
    let seen = move |piece: Bytes| {
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(&piece);
        let mut seen = Vec::new();
        while let Ok(Some(line)) = lines.next_line() {
            seen.extend_from_slice(&line_without(&line, &is_gone));
        }
        Bytes::from(seen)
    };
    let body = opened.body.map(move |piece| piece.map(&seen)).boxed();
    StreamResponse { body, ..opened }
}

/// A line of such a stream.
fn line_without(line: &[u8], is_gone: impl Fn(&Value) -> bool) -> Bytes {
    let mut line: Value = serde_json::from_slice(line).unwrap_or_default();
    if let Some(Ok(Value::Array(vms))) = line["vms"].as_str().map(serde_json::from_str) {
        let vms: Vec<Value> = vms.into_iter().filter(|vm| !is_gone(vm)).collect();
        line["vms"] = Value::from(Value::from(vms).to_string());
    }
    if is_gone(&line["vm"])
        && let Some(event) = line.as_object_mut()
    {
        event.insert("type".to_owned(), "delete".into());
        event.retain(|key, _| key != "vm" && key != "changes");
    }
    Bytes::from(format!("{line}\n"))
}

impl Transport for Sight {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let answer = self.wire.send(request).await?;
            Ok(match self.bug {
                Some(Bug::NameHiddenVms) => Response { body: shown(&answer.body), ..answer },
                Some(Bug::TakeHiddenForGone) => without_hidden(answer),
                _ => answer,
            })
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let opened = self.wire.stream(request).await?;
            Ok(match self.bug {
                Some(Bug::NameHiddenVms) => {
                    let body = opened.body.map(|piece| piece.map(|piece| shown(&piece))).boxed();
                    StreamResponse { body, ..opened }
                }
                Some(Bug::TakeHiddenForGone) => stream_without(opened, is_hidden),
                _ => opened,
            })
        })
    }
}
