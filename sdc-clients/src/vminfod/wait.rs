// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waiting until something is so on the node: what `vmadm` does with events, without its trap of
//! missing what was so already.

use std::time::Duration;

use ::http::Method;
use tokio::time::timeout;

use super::client::Vminfod;
use super::mirror::View;
use super::watch::{Watcher, watch};
use crate::error::{Error, Phase};
use crate::jitter::Jitter;

impl Watcher {
    /// Waits until `predicate` holds for the view of all VMs; at once if it holds already. The
    /// events until then are taken in and not told. Lost streams are waited out.
    ///
    /// # Errors
    /// A timeout, when it did not come to hold within `limit`.
    pub async fn wait_for(
        &mut self,
        mut predicate: impl FnMut(&View) -> bool,
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
    /// A timeout, when it did not come to hold within `limit`.
    pub async fn wait_for(
        &self,
        predicate: impl FnMut(&View) -> bool,
        limit: Duration,
    ) -> Result<(), Error> {
        watch(self, Jitter::from_entropy()).wait_for(predicate, limit).await
    }
}
