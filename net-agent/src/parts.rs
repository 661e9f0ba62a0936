// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parts of one agent. Each owns its state, and only its methods touch it; the tasks share the
//! parts and nothing else.

use std::sync::Arc;

use daemon::agent::{Census, Claims, Unclaimed};
use daemon::health::Health;
use daemon::pace::Pace;
use daemon::schedule::{Schedule, Work};
use daemon::state_file::StateFile;
use daemon::timing::{Clock, HOUR, Random, Retry};
use sdc_clients::napi::Napi;
use sdc_clients::vmapi::Vmapi;
use sdc_clients::vminfod::Vminfod;
use tokio::sync::Notify;

use crate::brake::{Brake, Reference, Scale};
use crate::config::Config;
use crate::departures::Departures;
use crate::history::History;
use crate::holds::HoldsFile;
use crate::permit::{Gate, Writer};
use crate::plan::Reason;
use crate::refused::Refused;
use crate::status::{Count, Status};
use crate::view::{LocalView, Node};

/// The clients of one agent.
#[derive(Clone)]
pub struct Clients {
    /// NAPI for reads; every request takes its turn.
    pub napi: Napi,
    /// NAPI for writes; the caller takes the turn.
    pub writer: Writer,
    /// VMAPI, with turns; none if the operator chose so.
    pub vmapi: Option<Vmapi>,
    pub vminfod: Vminfod,
    /// Looks for a second machine of this uuid.
    pub census: Option<Census>,
    /// The budget of requests.
    pub pace: Arc<Pace>,
    /// Whether NAPI answers.
    pub napi_health: Arc<Health>,
    /// Whether VMAPI answers.
    pub vmapi_health: Arc<Health>,
}

/// Whether the NICs of a VM are to be compared with NAPI, not only what left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upkeep(pub bool);

impl Work for Upkeep {
    fn and(self, other: Self) -> Self {
        Self(self.0 || other.0)
    }
}

pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The agent's clock.
    pub clock: Clock,
    /// The source of random waits.
    pub random: Random,
    pub clients: Clients,
    /// What an operator has decided about this machine.
    pub claims: Claims,
    /// What is known of the node.
    pub node: Arc<Node>,
    /// The checks before each write.
    pub gate: Gate,
    /// The operator's holds.
    pub holds: HoldsFile,
    /// What was written and deleted.
    pub history: History,
    /// The NICs that left the node.
    pub departures: Departures,
    /// The records that NAPI refused to write.
    pub refused: Refused,
    /// The mass-delete brake.
    pub brake: Brake,
    /// The VMs that are to be worked on.
    pub schedule: Arc<Schedule<Upkeep>>,
    /// What outlives the process.
    pub(crate) state_file: Arc<StateFile>,
    /// What the operator sees.
    pub status: Status,
}

impl Parts {
    /// Parts that know nothing yet.
    pub fn new(config: Config, clients: Clients) -> Arc<Self> {
        let (clock, random) = (Clock::start(), Random::new(config.basics.seed));
        let save = Arc::new(Notify::new());
        let state_dir = &config.basics.places.state_dir;
        let node = Arc::new(Node::new(clock, config.times.hidden_memory, Arc::clone(&save)));
        let holds = HoldsFile::new(state_dir);
        let cn_uuid = &config.policy.cn_uuid;
        let state_file = Arc::new(StateFile::new(state_dir, cn_uuid, Arc::clone(&save)));
        let (napi, vmapi) = (&clients.napi_health, &clients.vmapi_health);
        let services = vec![Arc::clone(napi), Arc::clone(vmapi)];
        let gate = Gate::new(&config, holds.clone(), Arc::clone(&state_file), Arc::clone(napi));
        Arc::new(Self {
            node,
            gate,
            holds,
            claims: Claims::new(state_dir),
            history: History::new(state_dir),
            departures: Departures::new(&config, clock, random.fork(), Arc::clone(&save)),
            refused: Refused::new(config.policy.second_look),
            brake: Brake::new(clock, save),
            schedule: Arc::new(Schedule::new(
                config.times.retry,
                config.times.resync,
                random.fork(),
            )),
            state_file,
            status: Status::new(clock, services),
            clock,
            random,
            clients,
            config,
        })
    }

    /// Returns the waits of a task that retries for ever.
    pub(crate) fn retry(&self) -> Retry {
        Retry::new(self.config.times.retry, self.config.times.resync, self.random.fork())
    }

    /// Returns what the brake measures in this view, for so many candidates.
    pub(crate) fn scale(&self, view: &LocalView, candidates: usize) -> Scale {
        let (listed, listed_vms) = self.brake.listed();
        Scale {
            candidates,
            confirmed: 0,
            // A damaged state file does not say.
            recent: (!self.state_file.lost_within(HOUR)).then(|| self.brake.recent()),
            listed,
            listed_vms,
            local_vms: view.vms.len(),
            reference: self.reference_in(view),
            had: self.brake.had(|vm| view.confirms(vm)),
            day: self.brake.day(view.vms.len(), |vm| view.confirms(vm)),
        }
    }

    /// Compares the reference view with this one. Returns none if there is no reference view or
    /// this one is not complete.
    pub(crate) fn reference_in(&self, view: &LocalView) -> Option<Reference> {
        view.is_complete().then(|| self.brake.compared(|vm| view.has_vm(vm))).flatten()
    }

    /// Makes this view the reference view, if it is complete.
    pub(crate) fn refer_to(&self, view: &LocalView) {
        if view.is_complete() {
            self.brake.note_view(view.vms.keys());
            self.brake.refer_to(view.vms.keys().cloned().collect());
        }
    }

    /// An operator claims a node for this machine: then every VM is looked at.
    pub async fn claim(&self, node: &str, by: &str, really: bool) -> Result<(), Unclaimed> {
        let census = self.clients.census.as_ref();
        self.claims.claim(&self.gate, census, (node, by), really).await?;
        let vms: Vec<String> = self.node.with(|i| i.view.vms.keys().cloned().collect());
        vms.iter().for_each(|vm| self.schedule.wake_changed(vm, self.clock.now(), Upkeep(true)));
        Ok(())
    }

    /// A task could not do its work because of this; it is counted and shown.
    pub(crate) fn failed(&self, error: &(dyn std::error::Error + 'static)) -> Reason {
        Reason::Request(self.status.failed(Count::Errors, error))
    }
}
