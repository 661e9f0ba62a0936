// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all routes and rounds share.

use std::sync::{Arc, Mutex, PoisonError};

use store::Store;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::agents::Agents;
use super::clock::Clock;
use super::peers::Peers;
use super::records::Records;
use super::settings;

/// Who does the steps of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// This service, through the agents.
    Own,
    /// Jobs elsewhere, which store the records themselves, as the deployed service's do.
    External,
}

/// A service; cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    /// The records.
    pub records: Records,
    /// The settings.
    pub settings: settings::Kept,
    /// The other services.
    pub peers: Peers,
    /// The agents of the nodes.
    pub agents: Agents,
    /// The time of day.
    pub clock: Clock,
    /// Who does the steps.
    pub steps: Steps,
    /// The address that clients know this service by.
    pub url: Arc<str>,
    /// The account that operators act as.
    pub operators: Uuid,
    /// Woken when a record has changed.
    pub wake: Arc<Notify>,
    /// How long this service does the rounds for sure.
    pub held: Held,
}

/// Until when a service holds the lease, by its own clock. The store refuses the writes of one that was stopped and
/// woken; NAPI, VMAPI and CNAPI know no leases.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<Mutex<Option<Instant>>>);

impl Held {
    /// The lease was claimed or renewed, and holds until then.
    pub fn set(&self, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Returns true if somebody else may hold the lease.
    pub fn is_over(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Service {
    /// Opens the buckets of the store.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open(
        store: &Store,
        peers: Peers,
        agents: Agents,
        steps: Steps,
        clock: Clock,
        url: &str,
    ) -> Result<Service, store::Error> {
        Ok(Service {
            records: Records::open(store).await?,
            settings: settings::Kept::open(store).await?,
            peers,
            agents,
            clock,
            steps,
            url: url.into(),
            operators: Uuid::nil(),
            wake: Arc::default(),
            held: Held::default(),
        })
    }
}
