// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The changes of a busy node, many times faster: boots, halts, reboots, quotas, tags, snapshots,
//! new and deleted VMs. The number of VMs and snapshots stays level.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::Shutdown;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use sdc_clients::vminfod::Vminfod;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::changes::mutate::Mutation;
use mocks::napi;
use simnode::{NodeError, Verbs, sample};

/// Changes under way at once: each of them waits until vminfod shows it.
const HANDS: usize = 16;
/// How far the number of VMs may go from where it began.
const SLACK: usize = 2;

/// What the hands did.
#[derive(Debug, Default)]
pub struct Done {
    pub changes: AtomicUsize,
    /// Changes that the VM's state forbade, or that another hand was faster with.
    pub refused: AtomicUsize,
}

/// What the hands need.
#[derive(Clone)]
pub struct Churn {
    /// vmadm's verbs, which wait until vminfod shows the change.
    pub verbs: Verbs,
    pub hub: Vminfod,
    /// Where a new VM's NICs are recorded, as provisioning does.
    pub napi: napi::Store,
    /// How many VMs there should be.
    pub level: usize,
    /// Changes a second, all hands together.
    pub per_second: f64,
    /// What was done.
    pub done: Arc<Done>,
}

impl Churn {
    /// Changes things until the shutdown.
    pub async fn run(self, seed: u64, shutdown: Shutdown) {
        let mut hands = JoinSet::new();
        for hand in 0..HANDS {
            let rng = StdRng::seed_from_u64(seed.wrapping_add(hand as u64));
            hands.spawn(self.clone().hand(rng, shutdown.clone()));
        }
        while hands.join_next().await.is_some() {}
    }

    async fn hand(self, mut rng: StdRng, shutdown: Shutdown) {
        let mut pace = interval(Duration::from_secs_f64(HANDS as f64 / self.per_second));
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            // Cancel-safe: a tick not taken is taken next time, and there is none.
            tokio::select! {
                _ = pace.tick() => {}
                () = shutdown.wait() => return,
            }
            let count = match self.once(&mut rng).await {
                Ok(()) => &self.done.changes,
                Err(_) => &self.done.refused,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn once(&self, rng: &mut StdRng) -> Result<(), NodeError> {
        let names: Vec<String> =
            self.verbs.node().zones()?.iter().map(|zone| zone.zonename.clone()).collect();
        let Some(name) = names.get(rng.random_range(0..names.len().max(1))) else {
            return self.create(rng).await;
        };
        let word: u16 = rng.random();
        match rng.random_range(0..100_u32) {
            0..30 => self.rotate(name, &format!("hourly-{}", word % 2)).await,
            30..55 => Mutation::Power.perform(&self.verbs, name).await,
            55..70 => Mutation::Quota(u64::from(word % 90) + 10).perform(&self.verbs, name).await,
            70..85 => {
                let value = (!word.is_multiple_of(3)).then(|| word.to_string());
                Mutation::Tag(format!("t{}", word % 3), value).perform(&self.verbs, name).await
            }
            85..92 => Mutation::Alias(format!("soak-{word}")).perform(&self.verbs, name).await,
            92..96 => Mutation::RestartInit.perform(&self.verbs, name).await,
            _ if names.len() + SLACK <= self.level => self.create(rng).await,
            _ if names.len() >= self.level + SLACK || word.is_multiple_of(2) => {
                self.verbs.delete(name).await
            }
            _ => self.create(rng).await,
        }
    }

    /// A snapshot, in place of the one of this name if there is one.
    async fn rotate(&self, vm: &str, name: &str) -> Result<(), NodeError> {
        match self.verbs.snapshot(vm, name).await {
            Ok(()) => Ok(()),
            Err(_) => self.verbs.delete_snapshot(vm, name).await,
        }
    }

    async fn create(&self, rng: &mut StdRng) -> Result<(), NodeError> {
        let brand = ["joyent-minimal", "lx", "bhyve"][rng.random_range(0..3_usize)];
        let uuid = self.verbs.create(&sample::fresh(brand, Some(rng.next_u64()))?).await?;
        // It may be gone again, or net-agent may have recorded it first.
        if let Ok(vm) = self.hub.vm(&uuid, true).await {
            let _known = self.napi.seed_from_vms(&[vm], self.verbs.node().cn_uuid());
        }
        Ok(())
    }
}
