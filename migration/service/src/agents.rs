// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The migration-agents of the nodes.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
pub use sdc_clients::agents::Known;
use sdc_clients::agents::NodeAgents;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Call, Transport};
use sdc_clients::{Class, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::node_reports::{NodeReport, NodeReports};
use migration_core::protocol::{
    Datasets, Doing, Looked, Node, Observe, Observed, Open, Order, Rate, Size,
};

/// How long an answer may take besides the wait that an order asks for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions for a state that is still being read.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a node may take to show that it is not dead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// No record has a higher revision: it counts what was done to one migration.
const HIGHEST: u64 = 1 << 53;

/// Returns true if a machine has answered, be it with an error.
pub fn is_answer(error: &Error) -> bool {
    error.status().is_some() || trust::has_answered(error)
}

/// An agent has answered for something that is not what it was asked for.
fn another(method: &Method, route: &str, expected: &str) -> Error {
    Error::new(
        Class::Protocol,
        method,
        format!("/{route}"),
        format!("the answer is not of {expected}"),
    )
}

/// The agents; cheap to clone.
#[derive(Clone, Debug)]
pub struct Agents(NodeAgents, Arc<NodeReports>);

impl Agents {
    /// Returns the agents of the nodes that CNAPI knows.
    pub fn new(known: Known, cnapi: Cnapi, transport: Arc<dyn Transport>) -> Agents {
        let sender = concat!("migration-service/", env!("CARGO_PKG_VERSION"));
        Agents(NodeAgents::new(known, cnapi, transport, sender), Arc::default())
    }

    /// Asks for a sign of life. Any answer is one, also an error, and a handshake with whatever certificate.
    pub async fn is_alive(&self, cn: Uuid) -> bool {
        self.answers(cn).await == Some(true)
    }

    /// The same; none where it is not known where to ask.
    pub async fn answers(&self, cn: Uuid) -> Option<bool> {
        match self.0.execute(cn, Call::get(&["ping"]).timeout(SIGN_OF_LIFE)).await {
            Err(error) if error.class() == Class::NoAddress => None,
            answer => Some(!answer.is_err_and(|error| !is_answer(&error))),
        }
    }

    /// Asks for the state of a copy until the agent has read it.
    pub async fn observe(&self, cn: Uuid, asked: &Observe) -> Result<Observed, Error> {
        loop {
            if let Looked::Observed(observed) = self.look(cn, asked).await? {
                return Ok(*observed);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Asks for the state of a copy.
    /// Fails also where the agent answers with another VM's object: it would be put into VMAPI.
    pub async fn look(&self, cn: Uuid, asked: &Observe) -> Result<Looked, Error> {
        let looked: Looked = self.post(cn, "observe", asked, PATIENCE, "an observation").await?;
        let Looked::Observed(observed) = &looked else { return Ok(looked) };
        let of = observed.object.as_ref().and_then(|object| object.get("uuid"));
        if of.is_some_and(|uuid| *uuid != json!(asked.about.vm)) {
            return Err(another(&Method::POST, "observe", "the VM"));
        }
        Ok(looked)
    }

    /// Sends an order, and waits for its end as long as it asks.
    pub async fn order(&self, cn: Uuid, order: &Order) -> Result<Doing, Error> {
        let within = PATIENCE + Duration::from_millis(order.wait_ms);
        self.post(cn, "orders", order, within, "how an order goes").await
    }

    /// Asks which migrations are open on a node, if it gives a sign of life. One with a revision that no record ever
    /// has is none: the record that is made of it could not count on. Fails if the agent does not answer.
    pub async fn open(&self, cn: Uuid) -> Result<Vec<Open>, Error> {
        let call = Call::get(&["migrations"]).timeout(SIGN_OF_LIFE);
        let open = self.0.execute(cn, call).await?.json("the migrations that are open");
        let mut open: Vec<Open> = open?;
        open.retain(|it| it.revision <= HIGHEST);
        Ok(open)
    }

    /// Asks what a node is.
    pub async fn node(&self, cn: Uuid) -> Result<Node, Error> {
        let node: Node = self.get(cn, &["node"], "a node").await?;
        if node.cn == cn {
            return Ok(node);
        }
        Err(another(&Method::GET, "node", "the node that was asked"))
    }

    /// Returns what a node is, or was a moment ago.
    pub async fn recent_node(&self, cn: Uuid) -> NodeReport {
        self.1.at(cn, self.node(cn)).await
    }

    /// Asks for the VM's object, read now.
    pub async fn object(&self, cn: Uuid, vm: Uuid) -> Result<Map<String, Value>, Error> {
        let object: Map<String, Value> =
            self.get(cn, &["vms", &vm.to_string()], "a VM's object").await?;
        if object.get("uuid") == Some(&json!(vm)) {
            return Ok(object);
        }
        Err(another(&Method::GET, "vms", "the VM"))
    }

    /// Asks what a VM uses.
    pub async fn size(&self, cn: Uuid, vm: Uuid) -> Result<Size, Error> {
        self.get(cn, &["vms", &vm.to_string(), "size"], "a size").await
    }

    /// Asks for the datasets of a copy.
    pub async fn datasets(&self, cn: Uuid, vm: Uuid) -> Result<Datasets, Error> {
        self.get(cn, &["vms", &vm.to_string(), "datasets"], "the datasets of a VM").await
    }

    /// Tells an agent that something was revoked.
    pub async fn has_news(&self, cn: Uuid) {
        let call = Call::new(Method::POST, &["trust", "news"]).timeout(SIGN_OF_LIFE);
        if let Err(error) = self.0.execute(cn, call).await {
            tracing::debug!(%cn, %error, "cannot tell an agent what was revoked; it asks within a minute");
        }
    }

    /// Asks which datasets of the VM's name are there though the node has no copy.
    pub async fn in_the_way(&self, cn: Uuid, vm: Uuid) -> Result<Vec<String>, Error> {
        self.get(cn, &["vms", &vm.to_string(), "in-the-way"], "names of datasets").await
    }

    /// Sets the limit of all streams of a node.
    pub async fn rate(&self, cn: Uuid, mbps: u32) -> Result<(), Error> {
        let call = Call::new(Method::PUT, &["rate"]).json(&Rate { mbps: Some(mbps) });
        self.0.execute(cn, call).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(
        &self,
        cn: Uuid,
        segments: &[&str],
        expected: &str,
    ) -> Result<T, Error> {
        self.0.execute(cn, Call::get(segments).timeout(PATIENCE)).await?.json(expected)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        cn: Uuid,
        route: &str,
        body: &impl Serialize,
        within: Duration,
        expected: &str,
    ) -> Result<T, Error> {
        let call = Call::new(Method::POST, &[route]).json(body).timeout(within);
        self.0.execute(cn, call).await?.json(expected)
    }
}
