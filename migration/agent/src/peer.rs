// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The agents of other nodes.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use sdc_clients::http::{Call, Transport, user_agent};
use sdc_clients::signed::{Secret, Signed};
use sdc_clients::{Error, Http};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use migration_core::protocol::{Accepted, Clear, Datasets, Offer, Peer, Received};

/// A listing may take as long as `zfs` takes.
const PATIENCE: Duration = Duration::from_secs(16 * 60);

/// Speaks to other agents.
pub struct Peers {
    transport: Arc<dyn Transport>,
    secret: Secret,
    cn: Uuid,
}

impl Peers {
    /// Speaks for the agent of this node.
    pub fn new(transport: Arc<dyn Transport>, secret: Secret, cn: Uuid) -> Peers {
        Peers { transport, secret, cn }
    }

    /// The agent of another node.
    pub fn to(&self, peer: &Peer) -> Result<Other, Error> {
        self.signed(&peer.url, &peer.cn.to_string()).map(Other)
    }

    /// A server of this name at this address.
    pub fn signed(&self, url: &str, audience: &str) -> Result<Http, Error> {
        let (inner, secret) = (Arc::clone(&self.transport), self.secret.clone());
        let name = self.cn.to_string();
        let agent = user_agent("migration-agent", env!("CARGO_PKG_VERSION"), Some(&name));
        let signed = Arc::new(Signed::new(inner, secret, audience));
        Ok(Http::with_transport(url, &agent, signed)?.without_retries())
    }
}

/// Another node's agent.
pub struct Other(Http);

impl Other {
    /// Asks what there is.
    pub async fn received(&self, asked: &Received) -> Result<Datasets, Error> {
        self.post("received", asked, "the datasets of a copy").await
    }

    /// Tells what must go.
    pub async fn clear(&self, clear: &Clear) -> Result<(), Error> {
        self.send("clear", clear).await.map(drop)
    }

    /// Offers a stream.
    pub async fn offer(&self, offer: &Offer) -> Result<Accepted, Error> {
        self.post("streams", offer, "an address and a token").await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        route: &str,
        body: &impl Serialize,
        expected: &str,
    ) -> Result<T, Error> {
        self.send(route, body).await?.json(expected)
    }

    async fn send(
        &self,
        route: &str,
        body: &impl Serialize,
    ) -> Result<sdc_clients::http::Reply, Error> {
        let call = Call::new(Method::POST, &[route]).json(body).timeout(PATIENCE);
        self.0.execute(call).await
    }
}
