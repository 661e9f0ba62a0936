// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The only way to write to NAPI: with a permit of the frame's gate, where no hold covers the VM and, for a
//! delete, the state file can be written.

use std::ops::Deref;
use std::sync::Arc;

use daemon::agent::{self, Permit};
use daemon::health::Health;
use daemon::state_file::StateFile;
use jiff::Timestamp;
use sdc_clients::http::Precondition;
use sdc_clients::napi::Napi;
use sdc_clients::{Error, MacAddr};

use crate::config::Config;
use crate::holds::HoldsFile;
use crate::plan::{Refusal, Wish};

/// A PUT of this NIC.
#[derive(Debug)]
pub(crate) struct Update(pub MacAddr);

/// A DELETE of this NIC.
#[derive(Debug)]
pub(crate) struct Delete(pub MacAddr);

/// What is to be sent.
pub(crate) trait Kind {
    /// True for deletes, which are counted in the state file.
    const COUNTED: bool;
}

impl Kind for Update {
    const COUNTED: bool = false;
}

impl Kind for Delete {
    const COUNTED: bool = true;
}

/// The frame's checks, and those of this agent.
#[derive(Debug)]
pub struct Gate {
    agent: agent::Gate,
    holds: HoldsFile,
    state_file: Arc<StateFile>,
    napi: Arc<Health>,
}

impl Deref for Gate {
    type Target = agent::Gate;

    fn deref(&self) -> &agent::Gate {
        &self.agent
    }
}

impl Gate {
    /// A gate that asks these.
    pub(crate) fn new(
        config: &Config,
        holds: HoldsFile,
        state_file: Arc<StateFile>,
        napi: Arc<Health>,
    ) -> Self {
        let agent = agent::Gate::new(&config.policy.cn_uuid, config.basics.mode);
        Self { agent, holds, state_file, napi }
    }

    /// Returns the time by which holds expire. Before NAPI has answered no hold expires.
    pub(crate) fn time(&self) -> Timestamp {
        self.napi.time()
    }

    /// Checks that no hold covers this VM now. Reads the file.
    pub(crate) async fn not_held(&self, vm: &str) -> Result<(), Refusal> {
        let holds = self.holds.read_or_hold_all().await;
        match holds.covering(vm, self.time()) {
            Some(hold) => Err(Refusal::Held(hold.clone())),
            None => Ok(()),
        }
    }

    /// Makes a permit for this NIC of this VM and hands it to `decide`, which judges the record a last time and
    /// returns the request, or why there is none. The request is then sent at once.
    pub(crate) async fn write<K, F, T>(
        &self,
        what: K,
        vm: &str,
        decide: impl for<'moment> FnOnce(Permit<'moment, K>) -> Result<F, T>,
    ) -> Result<Result<F::Output, T>, Refusal>
    where
        K: Kind,
        F: Future,
    {
        let held = self.not_held(vm).await;
        // The frame's reasons come first; none of its checks awaits.
        self.agent.writable()?;
        held?;
        if let Some(fault) = self.state_file.fault().filter(|_| K::COUNTED) {
            return Err(Refusal::StateFile(fault));
        }
        Ok(self.agent.write(what, decide).await?)
    }
}

/// NAPI for writes. The only caller of its PUT and DELETE.
#[derive(Clone)]
pub struct Writer(Napi);

impl Writer {
    /// Writes through this client, which must not retry.
    pub(crate) fn new(napi: Napi) -> Self {
        Self(napi)
    }

    /// Returns the PUT of a wish.
    pub(crate) fn update(
        &self,
        permit: Permit<'_, Update>,
        wish: &Wish,
        condition: Precondition,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (napi, Update(mac), update) = (self.0.clone(), permit.spend(), wish.update());
        async move { napi.update_nic(mac, &update, condition).await.map(drop) }
    }

    /// Returns the DELETE, with `If-Match`.
    pub(crate) fn delete(
        &self,
        permit: Permit<'_, Delete>,
        etag: String,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (napi, Delete(mac)) = (self.0.clone(), permit.spend());
        async move { napi.delete_nic(mac, Precondition::IfMatch(etag)).await }
    }
}
