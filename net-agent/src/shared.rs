// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the agent's tasks share: the node as last told, what left it, the budget, the board. The
//! one place that answers "may anything be written at this moment?". Locks here are held for a
//! few instructions and never over an await.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Jitter, MacAddr};

use crate::config::{Config, Mode};
use crate::holds::{Hold, HoldsFile};
use crate::inventory::{Identity, Inventory, LocalView, LocalVm};
use crate::plan::Policy;
use crate::plan::brake::Scale;
use crate::status::{Count, Status};

/// One hour, the brake's memory.
const HOUR: Duration = Duration::from_secs(3600);

/// How a NIC left the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its VM was deleted.
    WithVm,
    /// It left a VM that stays.
    Alone,
}

/// A NIC that left the node before our eyes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its VM.
    pub vm: String,
    /// How.
    pub left: Left,
    /// When to try (again), on the agent's clock.
    pub due: Duration,
    /// Tries so far.
    pub tries: usize,
    /// Why it is not settled yet.
    pub why: String,
}

/// What all tasks share.
#[derive(Debug)]
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// The rules.
    pub policy: Policy,
    /// The board.
    pub status: Status,
    /// The operator's holds.
    pub holds: HoldsFile,
    inventory: Mutex<Inventory>,
    /// Grows with every change of the inventory.
    revision: std::sync::atomic::AtomicU64,
    identity: Mutex<Option<Identity>>,
    departures: Mutex<BTreeMap<MacAddr, Departure>>,
    deletes: Mutex<VecDeque<Duration>>,
    jitter: Mutex<Jitter>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Empty: nothing known yet.
    pub fn new(config: Config) -> Arc<Self> {
        let jitter = config.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
        Arc::new(Self {
            policy: Policy::of(&config),
            holds: HoldsFile::new(&config.state_dir),
            status: Status::default(),
            inventory: Mutex::default(),
            revision: std::sync::atomic::AtomicU64::new(0),
            identity: Mutex::default(),
            departures: Mutex::default(),
            deletes: Mutex::default(),
            jitter: Mutex::new(jitter),
            config,
        })
    }

    /// The agent's clock.
    pub fn clock(&self) -> Duration {
        self.status.clock()
    }

    /// Reads the inventory.
    pub fn look<T>(&self, read: impl FnOnce(&Inventory) -> T) -> T {
        read(&lock(&self.inventory))
    }

    /// Changes the inventory.
    pub fn learn<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> T {
        let mut inventory = lock(&self.inventory);
        self.revision.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        change(&mut inventory)
    }

    /// How often the inventory has changed.
    pub fn revision(&self) -> u64 {
        self.revision.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Who the node says we are.
    pub fn identity(&self) -> Option<Identity> {
        lock(&self.identity).clone()
    }

    /// Notes who the node says we are.
    pub fn identify(&self, identity: Option<Identity>) {
        *lock(&self.identity) = identity;
    }

    /// The generator, for one draw.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Jitter) -> T) -> T {
        draw(&mut lock(&self.jitter))
    }

    /// Why nothing at all may be written now, if so.
    pub fn mute(&self) -> Option<String> {
        match self.identity() {
            None => return Some("waiting for vminfod's /sysinfo: who are we?".to_owned()),
            Some(identity) if identity.uuid != self.policy.cn_uuid => {
                return Some(format!(
                    "config says cn_uuid {} but sysinfo says {}: refusing to write",
                    self.policy.cn_uuid, identity.uuid
                ));
            }
            Some(_) => {}
        }
        if !self.look(|inventory| inventory.synced) {
            return Some("waiting for vminfod".to_owned());
        }
        (self.config.mode == Mode::Report).then(|| "report mode".to_owned())
    }

    /// The hold that covers this VM now, read from the disk.
    pub fn held(&self, vm: &str) -> Option<Hold> {
        let now = Timestamp::now();
        self.holds.read_or_hold_all(now).covering(vm, now).cloned()
    }

    /// NICs left the node: they will be looked at after the settle delay.
    pub fn depart(&self, before: &LocalVm, macs: impl IntoIterator<Item = MacAddr>, left: Left) {
        let due = self.clock() + self.config.settle;
        let mut departures = lock(&self.departures);
        for mac in macs {
            let departure = Departure {
                vm: before.uuid.clone(),
                left,
                due,
                tries: 0,
                why: "settling".to_owned(),
            };
            departures.insert(mac, departure);
        }
    }

    /// A VM is here: nothing of it has left but what it lacks, and its addresses are its own.
    pub fn returned(&self, vm: &LocalVm) {
        lock(&self.departures).retain(|mac, departure| {
            let same_vm = departure.vm == vm.uuid;
            !(vm.has(*mac) || (same_vm && (vm.hidden || departure.left == Left::WithVm)))
        });
    }

    /// The departures of one VM.
    pub fn departed(&self, vm: &str) -> Vec<(MacAddr, Departure)> {
        let departures = lock(&self.departures);
        departures.iter().filter(|(_, d)| d.vm == vm).map(|(m, d)| (*m, d.clone())).collect()
    }

    /// All departures.
    pub fn all_departed(&self) -> Vec<(MacAddr, Departure)> {
        lock(&self.departures).iter().map(|(m, d)| (*m, d.clone())).collect()
    }

    /// Is this departure still waiting? A return cancels it at once.
    pub fn is_departed(&self, mac: MacAddr, vm: &str) -> bool {
        lock(&self.departures).get(&mac).is_some_and(|departure| departure.vm == vm)
    }

    /// A departure is settled.
    pub fn settled(&self, mac: MacAddr, vm: &str) {
        let mut departures = lock(&self.departures);
        if departures.get(&mac).is_some_and(|departure| departure.vm == vm) {
            departures.remove(&mac);
        }
    }

    /// A departure has to wait longer.
    pub fn put_off(&self, mac: MacAddr, vm: &str, why: String) {
        let now = self.clock();
        let waits = &self.config.verdict_retry;
        let mut departures = lock(&self.departures);
        let Some(departure) = departures.get_mut(&mac).filter(|d| d.vm == vm) else { return };
        let wait = match waits.get(departure.tries) {
            Some(wait) => *wait,
            None => {
                let last = waits.last().copied().unwrap_or(HOUR);
                self.draw(|jitter| jitter.around(last, 0.25))
            }
        };
        departure.tries += 1;
        departure.due = now + wait;
        departure.why = why;
    }

    /// Notes a delete for the brake's memory.
    pub fn deleted(&self) {
        let now = self.clock();
        let mut deletes = lock(&self.deletes);
        deletes.push_back(now);
        while deletes.front().is_some_and(|at| now.saturating_sub(*at) >= HOUR) {
            deletes.pop_front();
        }
    }

    /// Deletes of the last hour.
    pub fn recent_deletes(&self) -> usize {
        let now = self.clock();
        lock(&self.deletes).iter().filter(|at| now.saturating_sub(**at) < HOUR).count()
    }

    /// The brake's question for one witnessed delete.
    pub fn scale_of_one(&self, confirmed: bool) -> Scale {
        let now = self.clock();
        let (local_vms, most_vms) = self.look(|i| (i.view.vms.len(), i.most_vms(now)));
        Scale {
            deletes: 1,
            confirmed: usize::from(confirmed),
            recent: self.recent_deletes(),
            listed: usize::try_from(self.status.get(Count::Listed)).unwrap_or(usize::MAX),
            local_vms,
            most_vms,
        }
    }

    /// A complete view of the node, read now (`GET /vms?sync=true`) and put in place, with what
    /// it showed to differ from memory. A view that an event overtook is read again.
    ///
    /// # Errors
    /// When vminfod does not answer, or the node never rests.
    pub async fn fresh_view(&self, vminfod: &Vminfod) -> Result<Fresh, String> {
        for _ in 0..5 {
            let (revision, asked) = (self.revision(), self.clock());
            let objects = vminfod
                .vms(true)
                .await
                .map_err(|err| format!("vminfod: {}", daemon::log::chain(&err)))?;
            let view = LocalView::read(&objects, asked);
            if self.revision() != revision {
                continue;
            }
            let differing = self.learn(|inventory| {
                inventory.forget(asked, self.config.hidden_memory);
                inventory.replace(view.clone())
            });
            return Ok(Fresh { view, differing });
        }
        Err("the node changed during five readings in a row".to_owned())
    }
}

/// A fresh view of the node.
#[derive(Clone, Debug)]
pub struct Fresh {
    /// The view.
    pub view: LocalView,
    /// VMs that differ from memory, and what they were.
    pub differing: Vec<(String, Option<LocalVm>)>,
}
