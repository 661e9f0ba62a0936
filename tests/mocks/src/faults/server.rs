// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A mock service on a socket.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Faults, Listening, Mock, Recorder, Rule, Seen, listen};

/// The data of a mock service, with its fault rules and request log. Clones share all of it.
pub trait Service: Mock + Clone {
    /// Its fault rules and its log.
    fn parts(&self) -> (&Faults, &Recorder);
}

/// A mock service on a socket.
#[derive(Debug)]
pub struct Server<S> {
    store: S,
    listening: Listening,
}

impl<S: Service> Server<S> {
    /// Starts to serve `store`. Port 0 takes a free port.
    pub async fn with_store(listen_on: SocketAddr, store: S) -> std::io::Result<Self> {
        let listening = listen(listen_on, Arc::new(store.clone())).await?;
        Ok(Self { store, listening })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.listening.addr()
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Its data.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Seen> {
        self.store.parts().1.all()
    }

    /// Adds a fault rule.
    pub fn add_fault(&self, rule: Rule) {
        self.store.parts().0.add(rule);
    }

    /// Closes the port and all connections. The data lives on in the store.
    pub async fn stop(self) {
        self.listening.stop().await;
    }

    /// Serves until the task is dropped.
    pub async fn wait(self) {
        self.listening.wait().await;
    }
}
