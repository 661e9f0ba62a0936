// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The agents of other nodes, and the service.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use sdc_clients::agents::NodeAgents;
use sdc_clients::http::{Call, Transport, user_agent};
use sdc_clients::identity::Identity;
use sdc_clients::{Error, Http};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use migration_core::protocol::{Accepted, Clear, Datasets, Offer, Received};

/// A listing may take as long as `zfs` takes.
const PATIENCE: Duration = Duration::from_secs(16 * 60);

/// Speaks to other agents, and to the service.
pub struct Peers {
    transport: Arc<dyn Transport>,
    agents: NodeAgents,
    cn: Uuid,
}

impl Peers {
    /// The client of this node's agent. The transport proves the identity of the peer.
    pub fn new(transport: Arc<dyn Transport>, agents: NodeAgents, cn: Uuid) -> Peers {
        Peers { transport, agents, cn }
    }

    /// The agent of another node.
    pub fn to(&self, cn: Uuid) -> Other {
        Other { cn, agents: self.agents.clone() }
    }

    /// The service at this address.
    pub fn service(&self, url: &str) -> Result<Http, Error> {
        let name = self.cn.to_string();
        let agent = user_agent("migration-agent", env!("CARGO_PKG_VERSION"), Some(&name));
        let http = Http::with_transport(url, &agent, Arc::clone(&self.transport))?;
        Ok(http.without_retries().to_peer(Identity::Service))
    }
}

/// Another node's agent.
pub struct Other {
    pub cn: Uuid,
    agents: NodeAgents,
}

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
        self.agents.execute(self.cn, call).await
    }
}
