// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests from HTTP to the loop: for a fresh reading, and for what only the loop knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Engine, Why};
use crate::dirty::Stale;
use crate::load::{Datasets, Sysinfo};
use crate::vm::Parts;

/// Who waits for a reading.
pub type Waiter = oneshot::Sender<Result<(), String>>;

/// How many requests may wait to be taken; more wait at the door.
const QUEUE: usize = 256;

/// What may be asked of the loop.
#[derive(Debug)]
pub enum Ask {
    /// A reading that begins after this: of one VM, or of the node. Told when what was read is
    /// committed, or which source failed.
    Fresh(Option<String>, Waiter),
    /// The raw parts of everything.
    Held(oneshot::Sender<Held>),
    /// When the sources of one VM were read; `None` when there is no such VM.
    Why(String, oneshot::Sender<Option<Why>>),
}

/// The raw parts that all objects are made of.
#[derive(Debug)]
pub struct Held {
    /// The node itself.
    pub sysinfo: Arc<Sysinfo>,
    /// Its datasets.
    pub datasets: Datasets,
    /// What was read of each zone, by zone name.
    pub parts: BTreeMap<String, Parts>,
}

/// The loop is ending.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("vminfod is stopping")]
pub struct Stopping;

/// The asking side.
#[derive(Clone, Debug)]
pub struct Asks(mpsc::Sender<Ask>);

impl Asks {
    /// The two sides.
    pub fn new() -> (Self, mpsc::Receiver<Ask>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Asks for a fresh reading, and waits until it is committed.
    pub async fn fresh(&self, name: Option<&str>) -> Result<(), String> {
        let name = name.map(str::to_owned);
        let asked = self.ask(|done| Ask::Fresh(name, done)).await;
        asked.map_err(|stopping| stopping.to_string())?
    }

    /// The raw parts of everything, as they are held.
    pub async fn held(&self) -> Result<Held, Stopping> {
        self.ask(Ask::Held).await
    }

    /// When the sources of one VM were read.
    pub async fn why(&self, name: &str) -> Result<Option<Why>, Stopping> {
        let name = name.to_owned();
        self.ask(|done| Ask::Why(name, done)).await
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Stopping> {
        let (done, answer) = oneshot::channel();
        self.0.send(ask(done)).await.map_err(|_| Stopping)?;
        answer.await.map_err(|_| Stopping)
    }
}

impl Engine {
    pub(super) fn asked(&mut self, ask: Ask) {
        match ask {
            Ask::Fresh(name, done) => self.fresh(name, done),
            Ask::Held(done) => {
                let known = self
                    .vms
                    .iter()
                    .filter_map(|(name, vm)| Some((name.to_string(), vm.parts.clone()?)));
                let held = Held {
                    sysinfo: Arc::clone(&self.sysinfo),
                    datasets: self.datasets.clone(),
                    parts: known.collect(),
                };
                let _asker_may_have_gone = done.send(held);
            }
            Ask::Why(name, done) => {
                let _asker_may_have_gone = done.send(self.why(&name));
            }
        }
    }

    /// The zone of this name, or the zone of the VM of this uuid.
    pub(super) fn zone_named(&self, name: String) -> String {
        let other = self.names.get(&name).filter(|_| !self.vms.contains_key(&*name));
        other.cloned().unwrap_or(name)
    }

    fn fresh(&mut self, name: Option<String>, done: Waiter) {
        let Some(name) = name else { return self.node_waiters.push(done) };
        let name = self.zone_named(name);
        match self.mark(&name, Stale::FRESH, Instant::now()) {
            Some(vm) => vm.waiters.push(done),
            None => drop(done.send(Err("too many names are asked for".to_owned()))),
        }
    }
}
