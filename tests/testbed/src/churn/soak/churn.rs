// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The changes of a busy node, many times faster: boots, halts, reboots, quotas, tags, snapshots,
//! new and deleted VMs. The number of VMs and snapshots stays level.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use sdc_clients::vminfod::Vminfod;

use crate::changes::mutate::Mutation;
use crate::churn::hands::Change;
use mocks::napi;
use simnode::{NodeError, Verbs, sample};

/// How far the number of VMs may go from where it began.
const SLACK: usize = 2;

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
}

impl Change for Churn {
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
}

impl Churn {
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
