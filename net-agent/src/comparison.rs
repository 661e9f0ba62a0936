// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The comparison task: every 300 s ± 10 % a fresh view of the node against what is known (R13). It
//! makes no request to NAPI unless they differ.

use std::sync::Arc;
use tokio::time::Instant;

use crate::changes::missed;
use crate::parts::Parts;
use crate::status::Count;
use crate::view::ViewError;

/// Compares, for ever.
pub(crate) async fn compare(parts: Arc<Parts>) {
    let parts = &*parts;
    let mut failed = None;
    loop {
        tokio::time::sleep(parts.random.around(parts.config.times.resync, 0.1)).await;
        if !parts.gate.is_synced() {
            continue;
        }
        match once(parts).await {
            Ok(()) => {
                if let Some(failed) = failed.take() {
                    parts.status.recovered(..=failed);
                }
            }
            Err(err) => {
                parts.failed(&err);
                failed = Some(Instant::now());
            }
        }
    }
}

#[tracing::instrument(name = "comparison", skip_all)]
async fn once(parts: &Parts) -> Result<(), ViewError> {
    let fresh = parts.node.read_fresh(&parts.clients.vminfod).await?;
    parts.status.count(Count::Resyncs);
    if fresh.view.is_complete() {
        parts.brake.note_view(fresh.view.vms.keys());
    }
    parts.state_file.forget_damage(parts.config.times.hidden_memory);
    missed(parts, fresh.differing);
    Ok(())
}
