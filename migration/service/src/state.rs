// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all routes and rounds share.

use std::sync::Arc;
use std::time::Duration;

use daemon::kept::Kept;
use store::Store;
use tokio::sync::Notify;
use uuid::Uuid;

use super::agents::Agents;
use super::clock::Clock;
use super::contacts::Contacts;
use super::enrol::Enrolment;
use super::evacuations::Evacuations;
use super::history;
use super::peers::Peers;
use super::records::Records;
use super::settings;

/// A service; cheap to clone.
#[derive(Clone, Debug)]
pub struct Service {
    pub records: Records,
    pub settings: settings::SettingsStore,
    /// The last contact with each agent.
    pub contacts: Contacts,
    /// The evacuations that are under way.
    pub evacuations: Evacuations,
    /// The other services.
    pub peers: Peers,
    /// The agents of the nodes.
    pub agents: Agents,
    /// The time of day.
    pub clock: Clock,
    /// The address that clients know this service by.
    pub url: Arc<str>,
    /// The account that operators act as.
    pub operators: Uuid,
    /// Who lets the agents in; none in tests.
    pub enrolment: Option<Enrolment>,
    /// How long the history is kept.
    pub history_keep: Duration,
    /// Whether the records outlive the zone's next image.
    pub kept: Kept,
    /// Woken when a record has changed.
    pub wake: Arc<Notify>,
}

impl Service {
    /// Opens the buckets of the store.
    pub async fn open(
        store: &Store,
        peers: Peers,
        agents: Agents,
        clock: Clock,
        url: &str,
    ) -> Result<Service, store::Error> {
        Ok(Service {
            records: Records::open(store).await?,
            settings: settings::SettingsStore::open(store).await?,
            contacts: Contacts::open(store).await?,
            evacuations: Evacuations::open(store).await?,
            peers,
            agents,
            clock,
            url: url.into(),
            operators: Uuid::nil(),
            enrolment: None,
            history_keep: history::KEEP,
            kept: Kept::default(),
            wake: Arc::default(),
        })
    }

    /// Returns true if the key of a node's agent was revoked, and no other was let in since.
    pub fn is_revoked(&self, cn: Uuid) -> bool {
        self.enrolment.as_ref().is_some_and(|enrolment| enrolment.is_revoked(cn))
    }

    /// Returns true if a node's agent answers. Where its key was revoked nobody is heard: whoever answers there proves
    /// nothing.
    pub async fn hears(&self, cn: Uuid) -> bool {
        !self.is_revoked(cn) && self.agents.is_alive(cn).await
    }
}
