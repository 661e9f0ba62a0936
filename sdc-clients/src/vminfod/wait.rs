// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waits for a state of the node, which may exist already.

use std::time::Duration;

use ::http::Method;
use tokio::time::timeout;

use super::client::Vminfod;
use super::mirror::Mirror;
use super::watch::{Watcher, watch};
use crate::error::{Error, Phase};
use crate::jitter::Jitter;

impl Watcher {
    /// Waits until `predicate` holds for the view of all VMs. Events until then are applied and not returned;
    /// a lost stream is waited for.
    ///
    /// # Errors
    /// A timeout after `limit`.
    pub async fn wait_for(
        &mut self,
        mut predicate: impl FnMut(&Mirror) -> bool,
        limit: Duration,
    ) -> Result<(), Error> {
        let holds = async {
            while !(self.is_following() && predicate(self.view())) {
                let _told = self.next().await;
            }
        };
        let waited = timeout(limit, holds).await;
        waited.map_err(|_| Error::timed_out(Phase::Total, &Method::GET, "/events", limit))
    }
}

impl Vminfod {
    /// The same on a stream of its own.
    ///
    /// # Errors
    /// A timeout after `limit`.
    pub async fn wait_for(
        &self,
        predicate: impl FnMut(&Mirror) -> bool,
        limit: Duration,
    ) -> Result<(), Error> {
        watch(self, Jitter::from_entropy()).wait_for(predicate, limit).await
    }
}
