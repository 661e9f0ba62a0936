// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The migration-agents of the nodes: where they are, and requests to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::Method;
use uuid::Uuid;

use crate::cnapi::Cnapi;
use crate::error::{Class, Error};
use crate::http::{Call, Http, Reply, Transport};
use crate::identity::Identity;

/// Where the agents are.
#[derive(Clone, Debug)]
pub struct Known {
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
    clients: Arc<Mutex<BTreeMap<Uuid, Http>>>,
}

impl std::fmt::Debug for NodeAgents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeAgents").finish_non_exhaustive()
    }
}

impl NodeAgents {
    /// Returns the agents of the nodes that CNAPI knows, to be asked in the name of `sender`. The transport proves that
    /// an answer is that of the node's own agent.
    pub fn new(
        known: Known,
        cnapi: Cnapi,
        transport: Arc<dyn Transport>,
        sender: &str,
    ) -> NodeAgents {
        let (known, clients) = (Arc::new(known), Arc::default());
        NodeAgents { transport, cnapi, known, sender: sender.into(), clients }
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<Uuid, Http>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call to the agent of a node, once. Where no answer comes, the node is looked up anew the next
    /// time: it may have another address.
    pub async fn execute(&self, cn: Uuid, call: Call) -> Result<Reply, Error> {
        let http = self.client(cn).await?;
        let answer = http.execute(call).await;
        if answer.as_ref().is_err_and(|error| error.status().is_none()) {
            self.clients().remove(&cn);
        }
        answer
    }

    async fn client(&self, cn: Uuid) -> Result<Http, Error> {
        let known = self.clients().get(&cn).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let url = match self.known.urls.get(&cn) {
            Some(url) => url.clone(),
            None => {
                let server = self.cnapi.get_server(&cn.to_string()).await?;
                let ip = server.admin_ip().ok_or_else(|| {
                    let why = "the node's sysinfo in CNAPI has no address on the admin network";
                    Error::new(Class::NoAddress, &Method::GET, format!("/servers/{cn}"), why)
                })?;
                format!("https://{}", SocketAddr::new(ip, self.known.port))
            }
        };
        let transport = Arc::clone(&self.transport);
        let http = Http::with_transport(&url, &self.sender, transport)?.without_retries();
        let http = http.to_peer(Identity::Agent(cn));
        self.clients().insert(cn, http.clone());
        Ok(http)
    }
}
