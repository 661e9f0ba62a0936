// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The only way to write to NAPI. A [`Permit`] can be made only here, after the checks: the identity
//! is known and is the configured one, the view is in sync, the mode is `on`, no hold covers the
//! VM, and, for a delete, the state file can be written.
//!
//! A permit is good for one request about one NIC, at the moment of the checks: its lifetime ends
//! with the closure that it is handed to, and the request that the closure returns is sent before
//! anything else runs in this task. So a permit cannot be stored, cloned, or held over an await: a
//! restart, a hold or a lost stream between plan and request is always before the checks.

use std::marker::PhantomData;
use std::sync::Arc;

use daemon::agent::Mode;
use daemon::health::Health;
use daemon::state_file::StateFile;
use jiff::Timestamp;
use sdc_clients::http::Precondition;
use sdc_clients::napi::Napi;
use sdc_clients::{Error, MacAddr};

use crate::config::Config;
use crate::holds::HoldsFile;
use crate::plan::{Refusal, Wish};
use crate::view::Node;

/// The right to send one request of this kind about one NIC, now.
#[derive(Debug)]
pub(crate) struct Permit<'moment, K> {
    mac: MacAddr,
    kind: PhantomData<K>,
    /// Invariant, so that no other lifetime can stand in for the closure's.
    moment: PhantomData<fn(&'moment ()) -> &'moment ()>,
}

/// A PUT.
#[derive(Debug)]
pub(crate) enum Update {}

/// A DELETE.
#[derive(Debug)]
pub(crate) enum Delete {}

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

/// The checks.
#[derive(Debug)]
pub struct Gate {
    node: Arc<Node>,
    holds: HoldsFile,
    state_file: Arc<StateFile>,
    napi: Arc<Health>,
    cn_uuid: String,
    mode: Mode,
}

impl Gate {
    /// A gate that asks these.
    pub(crate) fn new(
        config: &Config,
        node: Arc<Node>,
        holds: HoldsFile,
        state_file: Arc<StateFile>,
        napi: Arc<Health>,
    ) -> Self {
        let (cn_uuid, mode) = (config.policy.cn_uuid.clone(), config.basics.mode);
        Self { node, holds, state_file, napi, cn_uuid, mode }
    }

    /// Checks whether anything may be written now. For pages and for tasks that wait; a request
    /// needs a [`Permit`].
    pub(crate) fn writable(&self) -> Result<(), Refusal> {
        let identity = self.node.identity().ok_or(Refusal::IdentityUnknown)?;
        if identity.uuid != self.cn_uuid {
            let (configured, sysinfo) = (self.cn_uuid.clone(), identity.uuid);
            return Err(Refusal::WrongIdentity { configured, sysinfo });
        }
        if !self.node.look(|inventory| inventory.synced) {
            return Err(Refusal::NotSynced);
        }
        match self.mode {
            Mode::On => Ok(()),
            Mode::Report => Err(Refusal::ReportMode),
        }
    }

    /// Waits until something may be written, or until only the report mode forbids it. Calls
    /// `waiting` with each reason to wait.
    pub(crate) async fn until_writable(&self, waiting: impl Fn(Refusal)) {
        loop {
            let mut news = std::pin::pin!(self.node.news());
            // Before the check, so that news right after it is not missed.
            news.as_mut().enable();
            match self.writable() {
                Ok(()) | Err(Refusal::ReportMode) => return,
                Err(refusal) => waiting(refusal),
            }
            news.await;
        }
    }

    /// Returns the time by which holds expire: the earlier one of the node's clock and NAPI's, so
    /// that one clock that is ahead ends none. Before NAPI has answered no hold expires.
    pub(crate) fn time(&self) -> Timestamp {
        let napi = self.napi.time().unwrap_or(Timestamp::UNIX_EPOCH);
        napi.min(daemon::wall::now())
    }

    /// Checks that no hold covers this VM now. Reads the file.
    pub(crate) async fn not_held(&self, vm: &str) -> Result<(), Refusal> {
        let holds = self.holds.read_or_hold_all().await;
        match holds.covering(vm, self.time()) {
            Some(hold) => Err(Refusal::Held(hold.clone())),
            None => Ok(()),
        }
    }

    /// Makes a permit for this NIC and hands it to `decide`, which judges the record a last time
    /// and returns the request, or why there is none. The request is then sent at once.
    pub(crate) async fn write<K, F, T>(
        &self,
        (mac, vm): (MacAddr, &str),
        decide: impl for<'moment> FnOnce(Permit<'moment, K>) -> Result<F, T>,
    ) -> Result<Result<F::Output, T>, Refusal>
    where
        K: Kind,
        F: Future,
    {
        let held = self.not_held(vm).await;
        // No await from here to the first poll of the request.
        self.writable()?;
        held?;
        if let Some(fault) = self.state_file.fault().filter(|_| K::COUNTED) {
            return Err(Refusal::StateFile(fault));
        }
        let permit = Permit { mac, kind: PhantomData, moment: PhantomData };
        let request = match decide(permit) {
            Ok(request) => request,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(request.await))
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
        let (napi, mac, update) = (self.0.clone(), permit.mac, wish.update());
        async move { napi.update_nic(mac, &update, condition).await.map(drop) }
    }

    /// Returns the DELETE, with `If-Match`.
    pub(crate) fn delete(
        &self,
        permit: Permit<'_, Delete>,
        etag: String,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (napi, mac) = (self.0.clone(), permit.mac);
        async move { napi.delete_nic(mac, Precondition::IfMatch(etag)).await }
    }
}
