// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The migration-agents of the nodes: where they are, and requests to them, signed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::Method;
use uuid::Uuid;

use crate::cnapi::Cnapi;
use crate::error::{Class, Error};
use crate::http::{Call, Http, Reply, Transport};
use crate::signed::{Secret, Signed};

/// Where the agents are, and what they share with the services of the data centre.
#[derive(Clone, Debug)]
pub struct Known {
    /// The data centre's secret.
    pub secret: Secret,
    /// The agents' port on the admin network.
    pub port: u16,
    /// Base addresses of agents that are elsewhere.
    pub urls: BTreeMap<Uuid, String>,
}

/// The agents of the nodes that CNAPI knows; cheap to clone.
#[derive(Clone)]
pub struct NodeAgents {
    transport: Arc<dyn Transport>,
    cnapi: Cnapi,
    known: Arc<Known>,
    /// The `user-agent` of the requests.
    sender: Arc<str>,
    clients: Arc<Mutex<BTreeMap<Uuid, (String, Http)>>>,
}

impl std::fmt::Debug for NodeAgents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeAgents").finish_non_exhaustive()
    }
}

impl NodeAgents {
    /// Returns the agents of the nodes that CNAPI knows, to be asked in the name of `sender`.
    pub fn new(
        known: Known,
        cnapi: Cnapi,
        transport: Arc<dyn Transport>,
        sender: &str,
    ) -> NodeAgents {
        let (known, clients) = (Arc::new(known), Arc::default());
        NodeAgents { transport, cnapi, known, sender: sender.into(), clients }
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<Uuid, (String, Http)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call to the agent of a node, once. Where no answer comes, the node is looked up anew the next
    /// time: it may have another address.
    pub async fn execute(&self, cn: Uuid, call: Call) -> Result<Reply, Error> {
        let (_, http) = self.client(cn).await?;
        let answer = http.execute(call).await;
        if answer.as_ref().is_err_and(|error| error.status().is_none()) {
            self.clients().remove(&cn);
        }
        answer
    }

    /// Returns the base address of a node's agent.
    pub async fn url(&self, cn: Uuid) -> Result<String, Error> {
        Ok(self.client(cn).await?.0)
    }

    async fn client(&self, cn: Uuid) -> Result<(String, Http), Error> {
        let known = self.clients().get(&cn).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let url = match self.known.urls.get(&cn) {
            Some(url) => url.clone(),
            None => {
                let server = self.cnapi.get_server(&cn.to_string()).await?;
                let ip = server.admin_ip().ok_or_else(|| {
                    let why = "CNAPI knows no admin address of the node";
                    Error::new(Class::Protocol, &Method::GET, format!("/servers/{cn}"), why)
                })?;
                format!("http://{ip}:{}", self.known.port)
            }
        };
        let (inner, secret) = (Arc::clone(&self.transport), self.known.secret.clone());
        let signed = Arc::new(Signed::new(inner, secret, &cn.to_string()));
        let http = Http::with_transport(&url, &self.sender, signed)?.without_retries();
        let made = (url, http);
        self.clients().insert(cn, made.clone());
        Ok(made)
    }
}
