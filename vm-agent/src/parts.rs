// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parts of one agent. Each owns its state, and only its methods touch it; the tasks share the
//! parts and nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::agent::{Census, Claims, Foreign, Gate, Unclaimed};
use daemon::approval::{Approval, Approvals, Offer, Refused};
use daemon::health::Health;
use daemon::pace::{Pace, Paced};
use daemon::schedule::Schedule;
use daemon::state_file::StateFile;
use daemon::timing::{Clock, Random, Retry};
use sdc_clients::Error;
use sdc_clients::http::{Permit, Transport as _};
use sdc_clients::vmapi::{VmQuery, Vmapi};
use sdc_clients::vminfod::Vminfod;
use tokio::sync::Notify;

use crate::config::Config;
use crate::node::Node;
use crate::plan::{Judge, Reason, Record};
use crate::status::{Count, Status};
use crate::turns::Turns;
use crate::writer::Writer;

/// The clients of one agent.
#[derive(Clone)]
pub struct Clients {
    /// VMAPI for lists; every request takes its turn.
    pub lists: Vmapi,
    /// VMAPI for whoever reads with an admission.
    pub vmapi: Vmapi,
    /// VMAPI for whoever writes with an admission.
    pub writer: Writer,
    /// Looks for a second machine of this uuid.
    pub census: Option<Census>,
    /// The same for whoever has an admission.
    pub admitted: Option<Census>,
    /// Admits to VMAPI.
    pub entry: Arc<Paced>,
    pub vminfod: Vminfod,
    /// The budget of turns.
    pub pace: Arc<Pace>,
    /// Whether VMAPI answers.
    pub health: Arc<Health>,
}

pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// This node.
    pub cn_uuid: String,
    /// The agent's clock.
    pub clock: Clock,
    /// The source of random waits.
    pub random: Random,
    pub clients: Clients,
    /// The checks before each write.
    pub gate: Gate,
    /// What an operator has decided about this machine.
    pub claims: Claims,
    /// What is known of the node.
    pub node: Arc<Node>,
    /// The VMs that are to be worked on.
    pub schedule: Arc<Schedule<()>>,
    /// Who has a turn, and whom a write of many records is about.
    pub(crate) turns: Turns,
    /// The operator's approvals against the brake.
    approvals: Mutex<Approvals<String>>,
    /// What outlives the process.
    pub(crate) state_file: Arc<StateFile>,
    /// What the operator sees.
    pub status: Status,
}

/// For the explorer, which compares what agents know and mean to do.
impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.node.with(|known| write!(f, "{known:?}"))?;
        write!(f, " {:?} {:?} {:?}", self.gate, self.schedule, self.turns)
    }
}

impl Parts {
    /// Parts that know nothing yet.
    pub fn new(config: Config, cn_uuid: String, clients: Clients) -> Arc<Self> {
        let (clock, random) = (Clock::start(), Random::new(config.basics.seed));
        let save = Arc::new(Notify::new());
        let (times, state_dir) = (&config.times, &config.basics.places.state_dir);
        Arc::new(Self {
            node: Arc::new(Node::new(clock, times, Arc::clone(&save))),
            gate: Gate::new(&cn_uuid, config.basics.mode),
            schedule: Arc::new(Schedule::new(times.retry, times.retry.max, random.fork())),
            claims: Claims::new(state_dir),
            turns: Turns::default(),
            approvals: Mutex::default(),
            state_file: Arc::new(StateFile::new(state_dir, &cn_uuid, save)),
            status: Status::new(Arc::clone(&clients.health)),
            cn_uuid,
            clock,
            random,
            clients,
            config,
        })
    }

    /// Waits until VMAPI may be asked. The admission is good for one read and one write.
    pub(crate) async fn admission(&self) -> Permit {
        self.clients.entry.admit().await
    }

    /// Returns what judges now.
    pub(crate) fn judge(&self) -> Judge<'_> {
        Judge {
            cn_uuid: &self.cn_uuid,
            provisioning_age: self.config.times.provisioning_age,
            now: self.clients.health.time(),
        }
    }

    /// All that VMAPI has here and that is neither destroyed nor failed.
    pub(crate) fn of_node(&self) -> VmQuery {
        VmQuery {
            server_uuid: Some(self.cn_uuid.clone()),
            state: Some("active".to_owned()),
            ..VmQuery::default()
        }
    }

    /// VMAPI has this record of a VM, or none. One of this node that is from the future is an alarm.
    pub(crate) fn note_record(&self, vm: &str, record: Option<&Record>) {
        let is_ours = |record: &&Record| record.is_on(&self.cn_uuid) && record.over().is_none();
        let now = daemon::wall::now();
        let ahead = record.filter(is_ours).is_some_and(|record| record.is_ahead(now));
        self.status.ahead(vm, ahead);
    }

    /// VMAPI has a VM here that this agent never saw: checks that it is not another machine's with this uuid.
    /// Fails if it is, or if that is not known.
    pub(crate) async fn is_of_this_machine(&self, vm: &str) -> Result<(), Reason> {
        let census = self.clients.admitted.as_ref();
        let known = self.gate.is_of_this_machine(vm, census).await;
        known.map_err(|why| match why {
            Foreign::Refused(refusal) => refusal.into(),
            Foreign::Unknown(error) => self.failed(&error),
        })
    }

    /// An operator claims a node for this machine: then every VM is looked at.
    pub async fn claim(&self, node: &str, by: &str, really: bool) -> Result<(), Unclaimed> {
        let census = self.clients.census.as_ref();
        self.claims.claim(&self.gate, census, (node, by), really).await?;
        let vms: Vec<String> = self.node.with(|known| known.here.keys().cloned().collect());
        vms.iter().for_each(|vm| self.schedule.wake_changed(vm, self.clock.now(), ()));
        Ok(())
    }

    /// A task could not do its work because of this; it is counted and shown.
    pub(crate) fn failed(&self, error: &(dyn std::error::Error + 'static)) -> Reason {
        Reason::Request(self.status.failed(Count::Errors, error))
    }

    /// Returns the waits of a task that retries for ever.
    pub(crate) fn retry(&self) -> Retry {
        let retry = self.config.times.retry;
        Retry::new(retry, retry.max, self.random.fork())
    }

    fn approvals<T>(&self, ask: impl FnOnce(&mut Approvals<String>, Duration) -> T) -> T {
        ask(&mut self.approvals.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }

    /// Offers the VMs that the brake blocks for approval.
    pub(crate) fn offer(&self) -> Option<Offer<String>> {
        let gone: Vec<String> = self.node.with(|known| known.gone.keys().cloned().collect());
        let blocked = gone.into_iter().filter(|vm| self.status.is_braked(vm));
        let blocked = blocked.map(|vm| (vm, String::new())).collect();
        self.approvals(|approvals, now| approvals.offer(blocked, now))
    }

    /// Returns the latest offer that can be approved, and for how much longer.
    pub(crate) fn offered(&self) -> Option<(Offer<String>, Duration)> {
        self.approvals(|approvals, now| approvals.latest(now))
    }

    /// The operator approves an offer. Returns the number of VMs.
    /// Fails if no valid offer has this id.
    pub fn approve(&self, id: &str, by: &str) -> Result<usize, Refused> {
        let (count, vms) = self.approvals(|approvals, now| {
            let count = approvals.approve(id, by, now)?;
            Ok((count, approvals.keys(now).collect::<Vec<_>>()))
        })?;
        // Who approves has looked at the node as it is.
        self.node.accept();
        vms.iter().for_each(|vm| self.schedule.wake_changed(vm, self.clock.now(), ()));
        Ok(count)
    }

    /// Returns what the operator approved last, while it holds.
    pub(crate) fn approved(&self) -> Option<Approval> {
        self.approvals(|approvals, now| approvals.last(now))
    }

    /// A write about these VMs failed. If it may be carried out all the same, and late, they are looked
    /// at again when it will have been.
    pub(crate) fn unanswered<'a>(&self, error: &Error, vms: impl IntoIterator<Item = &'a str>) {
        if error.may_have_applied() {
            for vm in vms {
                let at = self.node.unanswered(vm);
                self.schedule.wake(vm, at, ());
            }
        }
    }

    /// This VM is reported destroyed.
    pub(crate) fn settled(&self, vm: &str) {
        self.approvals(|approvals, _| approvals.settle(&vm.to_owned()));
    }

    /// Returns true if the operator approved that this VM is reported destroyed.
    pub(crate) fn is_approved(&self, vm: &str) -> bool {
        self.approvals(|approvals, now| approvals.covers(&vm.to_owned(), "", now))
    }
}
