// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Nodes whose agents do not answer, of migrations of which nothing runs: those that run are asked by their rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use store::Fence;
use tokio::time::sleep;
use uuid::Uuid;

use super::ending::is_busy;
use super::order::Failed;
use crate::state::Service;
use migration_core::intent::End;
use migration_core::record::{Record, node_of};

/// Between two checks of all.
const PAUSE: Duration = Duration::from_secs(10);
/// So many nodes are asked at once.
const AT_ONCE: usize = 16;

/// Asks the agents of all nodes that have an open migration for a sign of life, again and again, until the lease is
/// found to be lost.
pub async fn listen(service: &Service, fence: &Fence) {
    loop {
        match check(service, fence).await {
            Err(Failed::Fenced) => return,
            Err(why) => {
                tracing::warn!(reason = %why, "cannot note which nodes do not answer; trying again");
            }
            Ok(()) => {}
        }
        sleep(PAUSE).await;
    }
}

async fn check(service: &Service, fence: &Fence) -> Result<(), Failed> {
    let mut waiting = service.records.open_ones().await?;
    waiting.retain(|kept| !is_busy(&kept.record) && kept.record.intent.older.is_none());
    let nodes: BTreeSet<Uuid> =
        waiting.iter().flat_map(|kept| asked(&kept.record)).map(|(_, cn)| cn).collect();
    let answers = stream::iter(nodes).map(|cn| async move {
        match service.is_revoked(cn) {
            true => (cn, Some(false)),
            false => (cn, service.agents.answers(cn).await),
        }
    });
    let answers: BTreeMap<Uuid, Option<bool>> = answers.buffer_unordered(AT_ONCE).collect().await;
    for mut kept in waiting {
        let before = kept.record.intent.clone();
        for (end, cn) in asked(&kept.record) {
            if let Some(answers) = answers.get(&cn).copied().flatten() {
                kept.record.intent.heard(end, answers, service.clock.now());
            }
        }
        if kept.record.intent == before {
            continue;
        }
        match service.records.write(&mut kept, Some(fence)).await.map_err(Failed::from) {
            Ok(()) | Err(Failed::Lost) => {} // a command has changed it: the next check reads it again
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Returns the nodes that are asked. One that was declared dead is watched as one that was replaced is.
fn asked(record: &Record) -> Vec<(End, Uuid)> {
    let ends = [End::Source, End::Target].into_iter();
    let ends = ends.filter(|end| !record.intent.is_replaced(*end));
    ends.filter_map(|end| Some((end, node_of(record, end)?))).collect()
}
