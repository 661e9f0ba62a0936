// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One instance of migration-service: its routes, and its rounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use migration_service::front::{Upstream, adoption, agent_routes, router};
use migration_service::runner::{TERM, lead};
use migration_service::{Addresses, Agents, Known, Peers, Service};
use sdc_clients::http::Transport;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::net::{Gated, Line, Net};
use super::points::Party;
use super::vault::Vault;

/// The place of an instance.
pub struct Instance {
    nth: u8,
    vault: Vault,
    /// Where its leases are: in the database, unless a deliberate bug says otherwise.
    leases: Vault,
    agents: BTreeMap<Uuid, String>,
    running: Mutex<Option<JoinHandle<()>>>,
}

impl Instance {
    /// The place of an instance on this database, which knows these agents.
    pub fn new(nth: u8, vault: &Vault, leases: &Vault, agents: BTreeMap<Uuid, String>) -> Instance {
        let (vault, leases) = (vault.clone(), leases.clone());
        Instance { nth, vault, leases, agents, running: Mutex::default() }
    }

    /// The name under which it answers.
    pub fn host(&self) -> String {
        format!("service-{}", self.nth)
    }

    /// Starts it, unless it was started meanwhile.
    pub async fn start(&self, net: &Arc<Net>) -> anyhow::Result<()> {
        if self.running.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Ok(());
        }
        let life = net.points.life(Party::Service(self.nth));
        let line: Arc<dyn Transport> = Line::new(net, Some(&life));
        let at = |peer: &str| format!("http://{peer}.sim");
        let addresses = Addresses {
            vmapi: at("vmapi"),
            cnapi: at("cnapi"),
            napi: at("napi"),
            imgapi: at("imgapi"),
            papi: at("papi"),
        };
        let peers = Peers::new(&addresses, &line)?;
        let known = Known { port: 5314, urls: self.agents.clone() };
        let agents = Agents::new(known, peers.cnapi.clone(), Arc::clone(&line));
        let gated = Gated::new(&life, &net.judge, &self.vault);
        let store = self.vault.store().with_faults(gated.clone());
        let leases = self.leases.store().with_faults(gated);
        let (clock, url) = (net.clock, format!("http://{}", self.host()));
        let service = Service::open(&store, peers, agents, clock, &url).await?;
        let upstream = Upstream::new(&addresses.vmapi, Arc::clone(&line))?;
        let routes = router(service.clone(), upstream);
        let routes = agent_routes(service.clone()).merge(adoption(service.clone())).merge(routes);
        net.serve(&self.host(), routes, &life);
        let rounds = tokio::spawn(lead(service, leases, TERM));
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(rounds);
        Ok(())
    }

    /// Ends it, where its life is over.
    pub async fn end(&self) {
        let rounds = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rounds) = rounds {
            rounds.abort();
            drop(rounds.await);
        }
    }
}
