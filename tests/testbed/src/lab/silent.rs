// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which nodes of a lab are silent: their cn-agent does nothing of what CNAPI orders, and sends no heartbeat.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An order for a silent node is looked at so often.
const LOOK: Duration = Duration::from_millis(100);

/// The silent nodes, by uuid. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Silent(Arc<Mutex<BTreeSet<String>>>);

impl Silent {
    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the node is silent.
    pub(super) fn has(&self, cn: &str) -> bool {
        self.held().contains(cn)
    }

    /// Makes a node silent, or no longer.
    pub(super) fn put(&self, cn: &str, is_silent: bool) {
        let mut all = self.held();
        if is_silent {
            all.insert(cn.to_owned())
        } else {
            all.remove(cn)
        };
    }

    /// Waits until the node does what it is told.
    pub(super) async fn over(&self, cn: &str) {
        while self.has(cn) {
            tokio::time::sleep(LOOK).await;
        }
    }
}
