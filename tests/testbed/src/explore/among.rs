// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two nodes and the service among services that somebody else plays.

use std::path::Path;
use std::sync::Arc;

use migration_core::intent::End;
use migration_core::time::Time;
use mocks::transport::InProcess;
use sdc_clients::Http;
use sdc_clients::migrations::Migrations;
use serde_json::{Map, Value};
use simnode::{Verbs, Wait};

use super::cn::Cn;
use super::net::{Line, Net};
use super::points::Points;
use super::service::Instance;
use super::vault::Vault;
use crate::moving::MIGRATION;
use crate::moving::judge::Judge;
use crate::moving::subject::VM;

/// The nodes, and migration-service.
pub struct Among {
    nodes: [Cn; 2],
    net: Arc<Net>,
    service: Instance,
}

impl Among {
    /// This VM runs on the source; nothing else does. The clock shows this time.
    pub async fn new(dir: &Path, now: Time, vm: &Map<String, Value>) -> anyhow::Result<Among> {
        let judge = Arc::new(Judge::new(VM));
        let net = Net::at(&Points::new(Vec::new()), &judge, None, now);
        let node = |end| Cn::new(dir, end, None, None);
        let nodes = [node(End::Source)?, node(End::Target)?];
        let agents = nodes.iter().map(|cn| (cn.uuid, format!("https://{}", cn.host()))).collect();
        let vault = Vault::new(false)?;
        let service = Instance::new(1, &vault, &vault, agents);
        nodes[0].verbs().create(vm).await?;
        Ok(Among { nodes, net, service })
    }

    /// vmadm on the target's node, as its cn-agent uses it.
    pub fn verbs(&self) -> Verbs {
        Verbs::new(&self.nodes[1].node.by(MIGRATION), Wait::none())
    }

    /// Starts vminfod and migration-agent on both nodes, and the service, among these.
    pub async fn start(&self, peers: Vec<(&str, InProcess)>) -> anyhow::Result<()> {
        for (name, peer) in peers {
            self.net.mock(&format!("{name}.sim"), peer);
        }
        for cn in &self.nodes {
            cn.start_vminfod(&self.net).await?;
            cn.start_agent(&self.net).await?;
        }
        self.service.start(&self.net).await
    }

    /// A client of the service, as an operator has it.
    pub fn migrations(&self) -> anyhow::Result<Migrations> {
        let url = format!("http://{}", self.service.host());
        let http = Http::with_transport(&url, "operator", Line::new(&self.net, None))?;
        Ok(Migrations::new(http.without_retries()))
    }

    /// Ends all of it.
    pub async fn end(&self) {
        self.service.end().await;
        for cn in &self.nodes {
            cn.end().await;
        }
        self.net.close();
    }
}
