// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The own-NICs task: claims the records of the node's own MACs and sets them and the `server` records
//! of this node to `running` (R11), once after the start. The pass does it again with each list.

use std::sync::Arc;

use daemon::agent::{State, server_nics};
use futures_util::StreamExt as _;
use sdc_clients::MacAddr;

use crate::apply;
use crate::parts::Parts;
use crate::status::Task;

/// Records at once.
const AT_ONCE: usize = 4;

/// Does it until each record is decided.
pub(crate) async fn keep_own(parts: Arc<Parts>) {
    let parts = &*parts;
    parts.status.ready(Task::OwnNics, &parts.gate).await;
    tokio::time::sleep(parts.random.within(parts.config.times.server_nic_delay)).await;
    let mut open = macs(parts).await;
    let mut retry = parts.retry();
    while !open.is_empty() {
        parts.status.ready(Task::OwnNics, &parts.gate).await;
        open = once(parts, open).await;
        if !open.is_empty() {
            tokio::time::sleep(retry.next_delay()).await;
        }
    }
    parts.status.is(Task::OwnNics, State::Resting);
    std::future::pending::<()>().await;
}

/// Returns the node's own MACs: those of sysinfo, and those of NAPI's `server` records of this node,
/// which sysinfo lacks if a link is gone or virtual.
pub(crate) async fn macs(parts: &Parts) -> Vec<MacAddr> {
    let mut macs = parts.gate.identity().unwrap_or_default().macs;
    let cn_uuid = &parts.config.policy.cn_uuid;
    match server_nics(&parts.clients.napi, cn_uuid).await {
        Ok(nics) => macs.extend(nics),
        Err(err) => {
            let reason = parts.failed(&err);
            tracing::warn!(%reason, "cannot list the server NICs of this node");
        }
    }
    macs.into_iter().collect()
}

/// Tries each of these once. Returns those that are not decided.
pub(crate) async fn once(parts: &Parts, macs: Vec<MacAddr>) -> Vec<MacAddr> {
    let tried = futures_util::stream::iter(macs)
        .map(|mac| async move { (mac, apply::keep_up_own(parts, mac).await) })
        .buffer_unordered(AT_ONCE);
    let open = tried.filter_map(|(mac, outcome)| async move { outcome.is_open().then_some(mac) });
    open.collect().await
}
