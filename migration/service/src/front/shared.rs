// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the routes work with.

use std::sync::Arc;
use std::time::Duration;

use daemon::cli::hosts::Hosts;
use sdc_clients::cnapi::Cnapi;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::upstream::Upstream;
use crate::state::Service;

/// How long host names are kept before CNAPI is asked again, and how long it may take.
const KEPT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(2);

/// What the routes work with.
#[derive(Clone, Debug)]
pub struct Front {
    /// The records, the clients, the clock.
    pub service: Service,
    /// The VMAPI behind this service.
    pub upstream: Upstream,
    pub names: Names,
}

/// The host names of nodes, as CNAPI reported last: people read them, and nothing is decided by them.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<Option<(Instant, Hosts)>>>);

impl Names {
    /// Returns the names; those of before where CNAPI does not answer soon.
    pub async fn read(&self, cnapi: &Cnapi) -> Hosts {
        let mut kept = self.0.lock().await;
        if let Some((at, hosts)) = &*kept
            && at.elapsed() < KEPT
        {
            return hosts.clone();
        }
        let hosts = match timeout(PATIENCE, Box::pin(Hosts::read(cnapi))).await {
            Ok(Ok(hosts)) => hosts,
            _ => kept.take().map(|(_, hosts)| hosts).unwrap_or_default(),
        };
        *kept = Some((Instant::now(), hosts.clone()));
        hosts
    }
}
