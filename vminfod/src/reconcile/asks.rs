// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests from HTTP to the reconciler: for a fresh reading, and for what only it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use sdc_clients::vminfod::Incomplete;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use vm_model::datasets::Datasets;
use vm_model::parse::sysinfo::Sysinfo;
use vm_model::parts::Parts;

use super::witness::Witnesses;

/// The sender of the answer to a request that waits for a reading.
pub type Waiter = oneshot::Sender<Result<(), String>>;

/// The sender of what a view of the zones lacks.
pub type ZonesWaiter = oneshot::Sender<Result<Incomplete, String>>;

/// Capacity of the queue of requests; a sender waits when it is full.
const QUEUE: usize = 256;

/// A request.
#[derive(Debug)]
pub enum Ask {
    /// A new reading, of one VM or of the node. The answer comes when it is committed, or names the
    /// source that failed.
    Fresh(Option<String>, Waiter),
    /// A new reading of the zones alone. The answer comes when it is committed.
    Zones(ZonesWaiter),
    /// The raw parts of everything.
    Held(oneshot::Sender<Held>),
    /// When the sources of one VM were read; `None` when there is no such VM.
    Why(String, oneshot::Sender<Option<Why>>),
}

/// The raw parts of all objects.
#[derive(Debug)]
pub struct Held {
    /// The node itself.
    pub sysinfo: Arc<Sysinfo>,
    pub datasets: Datasets,
    /// What was read of each zone, by zone name.
    pub parts: BTreeMap<Arc<str>, Arc<Parts>>,
}

/// One source of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceWhy {
    /// Its name, as `Origin::name` has it.
    pub name: String,
    /// When it was last read, or confirmed unread because nothing about it had changed.
    pub read_at: Option<Instant>,
    /// A newer reading is due or under way.
    pub stale: bool,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// All sources of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The zone's name: the key of the VM.
    pub zonename: String,
    /// The VM's uuid.
    pub uuid: String,
    /// Its sources, always in the same order; a failing part of no source of its own comes last. Of a zone that was
    /// never read only what fails.
    pub sources: Vec<SourceWhy>,
    /// What zoneadm, the index and the XML said last; `None`: one of them could not be read.
    pub witnesses: Option<Witnesses>,
    /// Its dataset.
    pub dataset: Option<String>,
    /// Row and XML were seen to go: the dataset is only left.
    pub seen_to_go: bool,
}

/// Sends requests.
#[derive(Clone, Debug)]
pub struct Asks(mpsc::Sender<Ask>);

impl Asks {
    /// Returns both ends of the queue.
    pub fn new() -> (Self, mpsc::Receiver<Ask>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Asks for a new reading and waits until it is committed.
    pub async fn fresh(&self, name: Option<&str>) -> Result<(), String> {
        let name = name.map(str::to_owned);
        self.ask(|done| Ask::Fresh(name, done)).await?
    }

    /// Asks for what zoneadm, the zone index and the zones' XMLs say now, and waits until it is
    /// committed. Returns what could not be read of them.
    pub async fn zones(&self) -> Result<Incomplete, String> {
        self.ask(Ask::Zones).await?
    }

    /// Returns the raw parts of everything.
    pub async fn held(&self) -> Result<Held, String> {
        self.ask(Ask::Held).await
    }

    /// Returns when the sources of one VM were read.
    pub async fn why(&self, name: &str) -> Result<Option<Why>, String> {
        let name = name.to_owned();
        self.ask(|done| Ask::Why(name, done)).await
    }

    /// Errors: the loop is ending.
    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, String> {
        let stopping = || "vminfod is stopping".to_owned();
        let (done, answer) = oneshot::channel();
        self.0.send(ask(done)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

/// Sends the result to all requests that wait.
pub(super) fn answer(waiters: Vec<Waiter>, result: &Result<(), String>) {
    for waiter in waiters {
        let _asker_may_have_gone: Result<(), _> = waiter.send(result.clone());
    }
}

/// Returns both ends of an answer.
pub(super) fn waiter() -> (Waiter, oneshot::Receiver<Result<(), String>>) {
    oneshot::channel()
}
