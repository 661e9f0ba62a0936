// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who answers an agent that asks its node's vminfod: for a while one that is too old, or took the port. It shows one
//! VM less than there is, and does not say that it has read anything for the request.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::{INCOMPLETE, SYNCED};
use serde_json::{Value, json};

use super::bugs::Bug;
use super::sight::stream_without;

/// The VM that whoever is in vminfod's place does not show; none while it is vminfod.
#[derive(Clone, Default)]
pub struct Impostor(Arc<Mutex<Option<String>>>);

impl Impostor {
    /// It hides this VM from now on, or is no more.
    pub(super) fn hides(&self, vm: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = vm;
    }

    fn hidden(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An agent's wire to whoever is there.
pub(super) struct Hub {
    vminfod: Arc<dyn Transport>,
    impostor: Impostor,
    bug: Option<Bug>,
}

impl Hub {
    /// The wire, with a deliberate bug or none.
    pub(super) fn new(
        vminfod: Arc<dyn Transport>,
        impostor: &Impostor,
        bug: Option<Bug>,
    ) -> Arc<Self> {
        Arc::new(Self { vminfod, impostor: impostor.clone(), bug })
    }
}

fn without(vm: &str, mut answer: Response) -> Response {
    match serde_json::from_slice(&answer.body) {
        Ok(Value::Array(vms)) => {
            let vms = vms.into_iter().filter(|it| it["uuid"] != vm);
            answer.body = Value::from_iter(vms).to_string().into();
        }
        Ok(it) if it["uuid"] == vm => {
            let why = format!("VM Not Found: {vm}");
            answer.status = StatusCode::NOT_FOUND;
            answer.body = json!({"code": "ResourceNotFound", "message": why}).to_string().into();
        }
        _ => {}
    }
    answer
}

impl Transport for Hub {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let Some(vm) = self.impostor.hidden() else { return self.vminfod.send(request).await };
            let mut asked = request.url.query_pairs().filter(|(name, _)| name == "sync");
            let asked = asked.next().and_then(|(_, value)| HeaderValue::from_str(&value).ok());
            let mut answer = without(&vm, self.vminfod.send(request).await?);
            answer.headers.remove(INCOMPLETE);
            answer.headers.remove(SYNCED);
            if let (Some(Bug::TrustAnyHub), Some(asked)) = (self.bug, asked) {
                answer.headers.insert(SYNCED, asked);
            }
            Ok(answer)
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let opened = self.vminfod.stream(request).await?;
            Ok(match self.impostor.hidden() {
                Some(vm) => stream_without(opened, move |it| it["uuid"] == *vm),
                None => opened,
            })
        })
    }
}
