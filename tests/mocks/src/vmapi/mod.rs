// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock VMAPI: what a node's agents read and write there, with the same fault rules and
//! request log as the mock NAPI.

pub mod cli;

mod handler;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;

use crate::faults::{self, Listening, Rule, Seen};
pub use store::Store;

/// A mock VMAPI on a socket.
#[derive(Debug)]
pub struct Server {
    store: Store,
    listening: Listening,
}

impl Server {
    /// Starts one with an empty store. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }

    /// Starts one on data that exists already.
    pub async fn with_store(listen: SocketAddr, store: Store) -> std::io::Result<Self> {
        let listening = faults::listen(listen, Arc::new(store.clone())).await?;
        Ok(Self { store, listening })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.listening.addr()
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Its data.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Seen> {
        self.store.log().all()
    }

    /// Adds a fault rule.
    pub fn add_fault(&self, rule: Rule) {
        self.store.faults().add(rule);
    }

    /// Closes the port and all connections.
    pub async fn stop(self) {
        self.listening.stop().await;
    }

    /// Serves until the task is dropped.
    pub async fn wait(self) {
        self.listening.wait().await;
    }
}

/// The mock as a router, without a socket.
pub fn router(store: Store) -> axum::Router {
    faults::router(Arc::new(store))
}
