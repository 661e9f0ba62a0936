// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parts of one agent. Each owns its state, and only its methods touch it; the tasks share the parts and nothing
//! else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::timing::{Clock, Random, Retry};
use sdc_clients::Http;
use sdc_clients::fleet::{Claim, Position};
use sdc_clients::vminfod::Vminfod;
use tokio::sync::watch;
use uuid::Uuid;

use crate::config::Config;
use crate::feed::Feed;
use crate::hub::Hub;
use crate::machine::Machine;
use crate::redact::Redaction;
use crate::status::{Differ, Status};

/// What is published of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The last event; none while the node is being compared.
    pub(crate) position: Option<Position>,
    /// How many VMs it has.
    pub(crate) vms: u64,
    /// How long `VMS` has stood still, where this agent makes the streams.
    pub(crate) still: Duration,
    /// What the servers do not have alike, where this agent makes the streams.
    pub(crate) differ: Differ,
}

pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// This node.
    pub cn_uuid: String,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) feed: Arc<dyn Feed>,
    pub(crate) hub: Hub,
    pub(crate) vminfod: Vminfod,
    pub(crate) redaction: Redaction,
    /// Who this program says to be.
    pub(crate) me: Claim,
    /// Whether it may publish: the heartbeat says so, and the publisher waits for it.
    pub(crate) holds: watch::Sender<bool>,
    told: Mutex<Told>,
    /// What the operator sees.
    pub status: Status,
}

impl Parts {
    /// Parts that know nothing yet. `hub` speaks to vminfod.
    pub fn new(
        config: Config,
        cn_uuid: String,
        machine: &Machine,
        hostname: Option<String>,
        feed: Arc<dyn Feed>,
        hub: &Http,
    ) -> Arc<Self> {
        let random = Random::new(config.basics.seed);
        let me = Claim {
            instance: Uuid::new_v4().to_string(),
            machine: machine.id.to_string(),
            hostname,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Arc::new(Self {
            clock: Clock::start(),
            random,
            feed,
            hub: Hub::new(hub.clone()),
            vminfod: Vminfod::with_http(hub.without_retries()),
            redaction: Redaction::new(&machine.key(), config.metadata.iter().cloned()),
            me,
            holds: watch::Sender::new(false),
            told: Mutex::default(),
            status: Status::default(),
            cn_uuid,
            config,
        })
    }

    /// Returns the waits after failures.
    pub(crate) fn retry(&self) -> Retry {
        let window = self.config.times.retry;
        Retry::new(window, window.max, self.random.fork())
    }

    /// Returns what is published.
    pub(crate) fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is known to be published.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
