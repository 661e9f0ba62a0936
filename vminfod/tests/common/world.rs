// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop on a node in process without sockets and watchers, so that a paused clock can be
//! turned: hours of the daemon in milliseconds.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use daemon::journal::Read;
use sdc_clients::Jitter;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use vm_model::stale::ZoneFile;
use vminfod::config::Config;
use vminfod::node::Ctx;
use vminfod::node::root::Root;
use vminfod::reconcile::asks::Asks;
use vminfod::reconcile::status::Status;
use vminfod::reconcile::{Reconciler, Seams};
use vminfod::sources::inbox::Inbox;
use vminfod::sources::signal::Signal;
use vminfod::sources::sysevent;
use vminfod::sources::watched::Zones;
use vminfod::store::Published;

use super::{FakeNode, line_of, zfs_history, zone_status};

/// A running loop.
pub struct World {
    pub published: Arc<Published>,
    inbox: Arc<Inbox>,
    pub status: Status,
    pub asks: Asks,
    shutdown: Shutdown,
    cursor: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

impl World {
    /// Loads the node and starts the loop.
    pub async fn start(node: &FakeNode, config: Config) -> Self {
        let (status, inbox) = (Status::default(), Arc::new(Inbox::default()));
        let shutdown = Shutdown::new();
        let (asks, requests) = Asks::new();
        let ctx = Ctx {
            root: Root::new(config.root.clone()),
            commands: Arc::new(node.clone()),
            deadlines: config.deadlines,
        };
        let seams = Seams {
            ctx,
            inbox: Arc::clone(&inbox),
            asks: requests,
            zones: watch::channel(Zones::default()).0,
            restart_zones: Arc::new(Notify::new()),
            restart_files: Arc::new(Notify::new()),
            jitter: Jitter::from_seed(11),
            shutdown: shutdown.clone(),
        };
        let mut engine = Reconciler::new(config, seams, status.clone());
        assert!(engine.first_load().await);
        let published = engine.published();
        tokio::spawn(engine.run());
        Self { published, inbox, status, asks, shutdown, cursor: 0 }
    }

    /// What a child would have printed.
    fn line(&self, event: &Value) {
        let signals = sysevent::signals(line_of(event).trim_end().as_bytes()).unwrap();
        let signals = signals.expect("that is an event");
        signals.into_iter().for_each(|signal| self.inbox.put(signal));
    }

    pub fn zone_event(&self, zone: &str, newstate: &str, zoneid: i64) {
        self.line(&zone_status(zone, newstate, zoneid));
    }

    pub fn zfs_event(&self, dataset: &str, action: &str) {
        self.line(&zfs_history(dataset, action, ""));
    }

    pub fn file_event(&self, zone: &str, file: ZoneFile) {
        self.inbox.put(Signal::File(zone.into(), file));
    }

    /// Some time of the paused clock later.
    pub async fn later(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// One VM as readers see it now; null if there is none.
    pub fn vm(&self, name: &str) -> Value {
        let snapshot = self.published.snapshot();
        let object = snapshot.vms.get(name).map(|vm| serde_json::from_slice(&vm.json()).unwrap());
        object.unwrap_or_default()
    }

    pub fn seq(&self) -> u64 {
        self.published.snapshot().seq
    }

    /// The events since the last call.
    pub fn events(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            match self.published.journal.read(self.cursor, usize::MAX) {
                Read::Lines { lines, cursor } => {
                    let bytes: Vec<u8> = lines.iter().flat_map(|line| line.to_vec()).collect();
                    let text = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                    all.extend(text.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
                    self.cursor = cursor;
                }
                Read::Empty => return all,
                Read::Gone => panic!("the ring is too small for this test"),
            }
        }
    }

    /// Waits until a VM is as wanted and says how long that took.
    pub async fn until(
        &self,
        name: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Duration {
        let began = Instant::now();
        let mut news = self.published.journal.subscribe();
        loop {
            let vm = self.vm(name);
            if wanted(&vm) {
                return began.elapsed();
            }
            let changed = tokio::time::timeout_at(began + limit, news.changed()).await;
            assert!(changed.is_ok(), "after {limit:?} still {vm:#?}");
        }
    }
}
