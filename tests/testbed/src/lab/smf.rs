// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! SMF of a lab's node: what `svcadm` says, by the rules of `simnode::life`, is done to the node's processes, and what
//! dies is started again.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use simnode::Node;
use simnode::life::platform::VMINFOD;
use simnode::life::repository::Instance;
use tokio::time::Instant;

use super::daemons::{Daemons, Running};
use super::error::LabError;
use crate::process::{self, Finished};

/// The programs of a node and of the data centre: the name, the service, and the manifest as it is shipped.
pub(super) const PROGRAMS: [(&str, &str, &str); 9] = [
    ("vminfod", VMINFOD, ""),
    (
        "migration-agent",
        "smartdc/agent/migration-agent",
        include_str!("../../../../deploy/smf/migration-agent.xml"),
    ),
    ("net-agent", "smartdc/agent/net-agent", include_str!("../../../../deploy/smf/net-agent.xml")),
    ("vm-agent", "smartdc/agent/vm-agent", include_str!("../../../../deploy/smf/vm-agent.xml")),
    ("kvmd", "system/smartdc/kvmd", include_str!("../../../../deploy/smf/kvmd.xml")),
    ("console", "system/smartdc/console", include_str!("../../../../deploy/smf/console.xml")),
    (
        "fleet-agent",
        "smartdc/agent/fleet-agent",
        include_str!("../../../../deploy/smf/fleet-agent.xml"),
    ),
    (
        "migration-service",
        "smartdc/site/migration-service",
        include_str!("../../../../deploy/smf/migration-service.xml"),
    ),
    ("volapi", "smartdc/site/volapi", include_str!("../../../../deploy/smf/volapi.xml")),
];
/// Of these, the programs of the data centre: they are on a node of the lab, and do not go silent with it.
pub(super) const OF_CENTRE: [&str; 2] = ["migration-service", "volapi"];

/// The longest that the simulated `svcadm` may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What dies so often within so long goes to maintenance.
const TOO_OFTEN: (usize, Duration) = (10, Duration::from_secs(600));

/// A node and its processes.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) node: Node,
    /// Gone with the world that has it.
    daemons: Running,
    /// When each program died by itself.
    deaths: HashMap<&'static str, VecDeque<Instant>>,
}

impl Site {
    pub(super) fn new(node: &Node, daemons: &Daemons) -> Site {
        Site { node: node.clone(), daemons: daemons.running(), deaths: HashMap::new() }
    }

    /// The processes, while the world stands.
    pub(super) fn daemons(&self) -> Option<Daemons> {
        self.daemons.daemons()
    }

    /// Runs `svcadm` as it is on the node, and does to the processes what it said.
    pub(super) async fn svcadm(&mut self, args: &[String]) -> Result<Finished, LabError> {
        let Some(daemons) = self.daemons() else {
            return Err(LabError::Broken("no node".to_owned()));
        };
        self.know(&daemons)?;
        let before: Vec<Option<Instance>> = self.instances()?;
        let said = process::run(&self.node.platform("svcadm"), args, PATIENCE).await;
        let said = said.map_err(LabError::io("running svcadm"))?;
        let waits = args.iter().any(|it| it.starts_with('-') && it.contains('s'));
        for ((name, ..), (before, now)) in PROGRAMS.iter().zip(before.iter().zip(self.instances()?))
        {
            let Some(now) = now.filter(|_| daemons.has_started(name)) else { continue };
            let is_wanted = now.is_enabled() && now.state == "online";
            let is_again = before.as_ref().is_some_and(|before| before.restarts != now.restarts);
            let runs = daemons.pid(name).is_some();
            if runs && (!is_wanted || is_again) {
                daemons.end(name, false).await?;
            }
            if is_wanted && (!runs || is_again) {
                self.deaths.remove(name);
                daemons.again(name, waits).await?;
            }
        }
        Ok(said)
    }

    /// A process has ended. Starts it again, unless it was ended on purpose; returns whether it did.
    pub(super) async fn died(&mut self, name: &'static str, pid: u32) -> Result<bool, LabError> {
        let Some(daemons) = self.daemons().filter(|all| all.pid(name) == Some(pid)) else {
            return Ok(false);
        };
        daemons.end(name, true).await?;
        let deaths = self.deaths.entry(name).or_default();
        deaths.push_back(Instant::now());
        deaths.retain(|at| at.elapsed() < TOO_OFTEN.1);
        if deaths.len() >= TOO_OFTEN.0 {
            self.know(&daemons)?;
            if let Some((_, service, _)) = PROGRAMS.iter().find(|it| it.0 == name) {
                self.node.set_instance(service, "maintenance")?;
            }
            return Ok(false);
        }
        daemons.again(name, false).await.map(|()| true)
    }

    fn instances(&self) -> Result<Vec<Option<Instance>>, LabError> {
        let all = self.node.repository()?;
        let of = |service: &str| all.instance(&(service.to_owned(), "default".to_owned())).cloned();
        Ok(PROGRAMS.iter().map(|(_, service, _)| of(service)).collect())
    }

    /// SMF knows each program that the lab has started.
    fn know(&self, daemons: &Daemons) -> Result<(), LabError> {
        for (name, service, manifest) in PROGRAMS.iter().filter(|it| daemons.has_started(it.0)) {
            let is_new = self.node.repository()?.service(service).is_none();
            if is_new {
                let known = self.node.change_repository(|all| all.import(manifest, name))?;
                known.map_err(LabError::Broken)?;
                let state = if daemons.pid(name).is_some() { "online" } else { "disabled" };
                self.node.set_instance(service, state)?;
            }
        }
        Ok(())
    }
}
