// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A gate in front of services, which can hold a request.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request};
use mocks::faults::{Mock, Reply};
use tokio::sync::{Notify, oneshot};

/// Holds one request of those that pass: each passes before it is handled, and before it is answered.
#[derive(Default)]
pub struct Gate {
    passed: Mutex<Vec<String>>,
    armed: Mutex<Option<(String, oneshot::Sender<()>)>>,
    opened: Notify,
}

impl Gate {
    /// Holds the next pass at this place; the receiver hears of it.
    pub fn hold(&self, place: &str) -> oneshot::Receiver<()> {
        let (tell, held) = oneshot::channel();
        *self.armed.lock().unwrap() = Some((place.to_owned(), tell));
        held
    }

    /// Lets the held request pass.
    pub fn open(&self) {
        self.opened.notify_one();
    }

    /// Returns the places of all passes since the last time.
    pub fn passed(&self) -> Vec<String> {
        std::mem::take(&mut self.passed.lock().unwrap())
    }

    async fn pass(&self, place: String) {
        let held = self.armed.lock().unwrap().take_if(|(wanted, _)| *wanted == place);
        self.passed.lock().unwrap().push(place);
        if let Some((_, tell)) = held {
            tell.send(()).unwrap();
            self.opened.notified().await;
        }
    }
}

/// The path with a star in place of each uuid.
fn without_uuids(path: &str) -> String {
    let part = |part| if uuid::Uuid::parse_str(part).is_ok() { "*" } else { part };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// A service whose requests pass the gate.
pub struct Gated {
    pub name: &'static str,
    pub mock: Arc<dyn Mock>,
    pub gate: Arc<Gate>,
}

impl Mock for Gated {
    fn handle(&self, request: Request<Bytes>) -> BoxFuture<'_, Reply> {
        // What the updater asks by itself.
        let is_own = ["/changefeeds", "/vms"].contains(&request.uri().path())
            && request.method() == Method::GET;
        if is_own || ["imgapi", "workflow"].contains(&self.name) {
            return self.mock.handle(request);
        }
        let step =
            format!("{} {} {}", self.name, request.method(), without_uuids(request.uri().path()));
        Box::pin(async move {
            self.gate.pass(format!("before {step}")).await;
            let reply = self.mock.handle(request).await;
            self.gate.pass(format!("after {step}")).await;
            reply
        })
    }
}
