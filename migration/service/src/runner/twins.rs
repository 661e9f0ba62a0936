// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migrations of which nothing is done now, and both of whose copies run: a person has booted one of them. The agents are
//! asked once a minute; a round finds it by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use migration_core::intent::End;
use migration_core::machine::both;
use migration_core::record::{Record, node_of};
use migration_core::time::Time;
use store::Fence;
use tokio::time::sleep;
use uuid::Uuid;

use super::ending::is_busy;
use super::order::Failed;
use crate::state::Service;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(60);
/// So many nodes are asked at once.
const AT_ONCE: usize = 16;

/// Looks again and again.
pub async fn look(service: &Service, fence: &Fence) {
    loop {
        sleep(PAUSE).await;
        if let Err(why) = of_all(service, fence).await {
            tracing::warn!(reason = %why, "cannot find out whether both copies of a VM run; trying again");
        }
    }
}

/// Looks at all records that are at rest and have two copies.
async fn of_all(service: &Service, fence: &Fence) -> Result<(), Failed> {
    let mut all = service.records.open_ones().await?;
    all.retain(|kept| {
        let record = &kept.record;
        let has_two = record.target_server_uuid.is_some();
        has_two && !is_busy(record) && record.intent.older.is_none()
    });
    let ends = [End::Source, End::Target];
    let nodes: BTreeSet<Uuid> = all
        .iter()
        .flat_map(|kept| ends.map(|end| node_of(&kept.record, end)).into_iter().flatten())
        .collect();
    let asked = stream::iter(nodes).map(|cn| async move {
        let open = service.agents.open(cn).await.unwrap_or_default();
        open.into_iter().filter_map(move |it| Some(((it.migration, it.end), it.runs?)))
    });
    let running: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    let running: BTreeMap<(Uuid, End), bool> = running.into_iter().flatten().collect();
    for mut kept in all {
        let [source, target] = ends.map(|end| running.get(&(kept.record.id, end)).copied());
        if found(&mut kept.record, both(source, target), service.clock.now()) {
            match service.records.write(&mut kept, Some(fence)).await.map_err(Failed::from) {
                // What changed it meanwhile is a command: its rounds look, too.
                Ok(()) | Err(Failed::Lost) => {}
                Err(why) => return Err(why),
            }
        }
    }
    Ok(())
}

/// Writes into a record whether both copies run, where that is known. Returns true if it is news.
pub fn found(record: &mut Record, both_run: Option<bool>, now: Time) -> bool {
    let was = record.intent.both_run;
    if both_run.is_none_or(|both_run| both_run == was.is_some()) {
        return false;
    }
    record.intent.both_run = (was.is_none()).then_some(now);
    if was.is_none() {
        tracing::error!(
            vm = %record.vm_uuid,
            id = %record.id,
            "both copies of a VM run: one of them was booted by hand; `sdc-migrate get` has the command that ends it"
        );
    }
    true
}
