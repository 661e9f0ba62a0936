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
use tokio::sync::Notify;

use crate::approval::Approvals;
use crate::config::{Config, Mode};
use crate::departed::Departed;
pub use crate::departed::{Departure, Left, Waits};
use crate::holds::{Hold, HoldsFile};
use crate::inventory::{Identity, Inventory, LocalView, LocalVm};
use crate::memory::{MemoryFile, Seen};
use crate::plan::Policy;
use crate::status::Status;

mod braked;

/// One hour, the brake's memory.
const HOUR: Duration = Duration::from_secs(3600);
/// VMAPI is asked again after the waits of `verdict_retry` (5, 15, 60, 300 s, and then as the last
/// with jitter, until it is decided). Of these, only those of up to a minute hear its word within
/// the two minutes that a removed VM's NICs may stay after it. So while no more NICs than this
/// wait for VMAPI to say that their VMs are destroyed, ...
const FEW: usize = 20;
/// ... the longer waits are cut to this (jittered), which leaves time for the delete itself, ...
const SOON: Duration = Duration::from_secs(85);
/// ... during the first hour: what is not said by then may never be, and the usual waits go on.
/// That is 45 requests an hour for each of a few VMs at most, far below the agent's budget.
const SOON_TRIES: usize = 45;

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
    pub(crate) departed: Mutex<Departed>,
    /// When each delete of the last hour stops to count, on the agent's clock.
    pub(crate) deletes: Mutex<VecDeque<Duration>>,
    approvals: Mutex<Approvals>,
    /// Candidates of the last pass that are not decided, and when each was first seen.
    looks: Mutex<BTreeMap<MacAddr, Duration>>,
    /// What the brake keeps, with the VMs.
    braked: Mutex<BTreeMap<MacAddr, String>>,
    /// Addresses of the last run that are not here and not decided yet, with their VMs.
    pub(crate) strays: Mutex<BTreeMap<MacAddr, String>>,
    /// The file of what outlives this process.
    pub memory: MemoryFile,
    /// Since when an earlier memory is lost, and what was wrong with it.
    pub(crate) lost: Mutex<Option<Seen>>,
    /// Why the memory cannot be written, if so.
    pub(crate) memory_fault: Mutex<Option<String>>,
    /// Something to be kept has changed.
    pub(crate) changed: Notify,
    /// The passes have something to do at once.
    pub(crate) approved: Notify,
    /// The node, or who we are, was told anew: see whether anything may be written now.
    pub(crate) told: Notify,
    jitter: Mutex<Jitter>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Nothing known yet but what the last run left on the disk.
    pub fn new(config: Config) -> Arc<Self> {
        let memory = MemoryFile::new(&config.state_dir);
        Self::with_memory(config, memory)
    }

    /// The same with another file, or none.
    pub fn with_memory(config: Config, memory: MemoryFile) -> Arc<Self> {
        let jitter = config.seed.map_or_else(Jitter::from_entropy, Jitter::from_seed);
        let shared = Self {
            policy: Policy::of(&config),
            holds: HoldsFile::new(&config.state_dir),
            status: Status::default(),
            inventory: Mutex::default(),
            revision: std::sync::atomic::AtomicU64::new(0),
            identity: Mutex::default(),
            departed: Mutex::default(),
            deletes: Mutex::default(),
            approvals: Mutex::default(),
            looks: Mutex::default(),
            braked: Mutex::default(),
            strays: Mutex::default(),
            memory,
            lost: Mutex::default(),
            memory_fault: Mutex::default(),
            changed: Notify::new(),
            approved: Notify::new(),
            told: Notify::new(),
            jitter: Mutex::new(jitter),
            config,
        };
        shared.recall();
        Arc::new(shared)
    }

    /// The agent's clock.
    pub fn clock(&self) -> Duration {
        self.status.clock()
    }

    /// Reads the inventory, with what is remembered of hidden VMs as of now.
    pub fn look<T>(&self, read: impl FnOnce(&Inventory) -> T) -> T {
        let mut inventory = lock(&self.inventory);
        inventory.refresh(self.clock());
        read(&inventory)
    }

    /// Changes the inventory.
    pub fn learn<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> T {
        let mut inventory = lock(&self.inventory);
        self.revision.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let changed = change(&mut inventory);
        self.changed.notify_one();
        self.told.notify_waiters();
        changed
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
        self.told.notify_waiters();
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

    /// NICs left the node: they will be looked at after the settle delay or, where nobody told of
    /// it, when a second look is due. Gives that time.
    pub fn depart(
        &self,
        before: &LocalVm,
        macs: impl IntoIterator<Item = MacAddr>,
        left: Left,
    ) -> Duration {
        let settle = self.config.settle;
        let unseen = left == Left::Before;
        let wait = if unseen { settle.max(self.config.second_look) } else { settle };
        let due = self.clock() + wait;
        lock(&self.departed).add(&before.uuid, macs, left, due);
        self.changed.notify_one();
        due
    }

    /// These were shown to us, whatever comes of the answer that showed them: those hidden among
    /// them are remembered as hidden, should they go before anything else tells of them.
    pub(crate) fn shown<'a>(&self, vms: impl IntoIterator<Item = &'a LocalVm>) {
        let until = self.clock() + self.config.hidden_memory;
        let hidden: Vec<_> = vms.into_iter().filter(|vm| vm.hidden).collect();
        if !hidden.is_empty() {
            self.learn(|inventory| hidden.into_iter().for_each(|vm| inventory.note(vm, until)));
        }
    }

    /// A VM is here: whatever of it had left, and had not, is struck out.
    pub fn returned(&self, vm: &LocalVm) {
        if lock(&self.departed).returned(vm) {
            self.changed.notify_one();
        }
    }

    /// The departures of one VM.
    pub fn departed(&self, vm: &str) -> Vec<(MacAddr, Departure)> {
        lock(&self.departed).of(vm)
    }

    /// All departures.
    pub fn all_departed(&self) -> Vec<(MacAddr, Departure)> {
        lock(&self.departed).all()
    }

    /// Is this departure still waiting? A return cancels it at once.
    pub fn is_departed(&self, mac: MacAddr, vm: &str) -> bool {
        lock(&self.departed).has(mac, vm)
    }

    /// A departure is settled.
    pub fn settled(&self, mac: MacAddr, vm: &str) {
        if lock(&self.departed).settle(mac, vm) {
            self.changed.notify_one();
        }
    }

    /// A departure has to wait longer.
    pub fn put_off(&self, mac: MacAddr, vm: &str, waits: Waits, why: String) {
        let now = self.clock();
        let retries = &self.config.verdict_retry;
        let mut departed = lock(&self.departed);
        let few = departed.len() <= FEW;
        let Some(departure) = departed.get_mut(mac, vm) else { return };
        let mut wait = match retries.get(departure.tries) {
            Some(wait) => *wait,
            None => {
                let last = retries.last().copied().unwrap_or(HOUR);
                self.draw(|jitter| jitter.around(last, 0.25))
            }
        };
        if few && waits == Waits::Verdict && departure.tries < SOON_TRIES {
            wait = wait.min(self.draw(|jitter| jitter.around(SOON, 0.15)));
        }
        departure.tries += 1;
        departure.due = now + wait;
        (departure.waits, departure.why) = (waits, why);
        drop(departed);
        self.changed.notify_one();
    }

    /// Notes the candidates that the pass has not decided, and their first looks.
    pub(crate) fn note_open(&self, looks: &BTreeMap<MacAddr, Duration>) {
        lock(&self.looks).clone_from(looks);
    }

    /// How many candidates are not decided.
    pub fn open(&self) -> usize {
        lock(&self.looks).len()
    }

    /// When an undecided candidate was first seen.
    pub fn first_look(&self, mac: MacAddr) -> Option<Duration> {
        lock(&self.looks).get(&mac).copied()
    }

    /// When nothing that missing VMs may have left is undecided, the node is as big as it is:
    /// the brake measures against that from now on. Never before a list was read.
    pub(crate) fn settle_size(&self) {
        if self.open() == 0 && self.status.passes() > 0 && lock(&self.departed).is_empty() {
            let now = self.clock();
            let fallen = |i: &Inventory| i.most_vms(now).is_some_and(|m| i.view.vms.len() * 2 < m);
            if self.look(|i| i.view.complete && fallen(i)) {
                self.learn(|inventory| inventory.accept_size(now));
            }
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
            let mut view = LocalView::read(&objects, asked);
            if self.revision() != revision {
                self.shown(view.vms.values());
                continue;
            }
            let differing = self.learn(|inventory| {
                inventory.forget(asked);
                let differing = inventory.replace(view.clone(), self.config.hidden_memory);
                inventory.mark(&mut view, asked);
                differing
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
