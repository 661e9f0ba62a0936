// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The end of a world: the faults stop, and everything has to agree within T and to be silent then
//! (V7, I11, M1). Writes between the agreement and T are allowed, since a retry may be under way;
//! [`super::judge`] checks them.

use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use super::centre::Centre;
use super::checks;
use super::node::{CACHE, COMPARED, Cn, RELIST, SECOND_LOOK};
use super::steps;
use super::world::{Reader, held};

/// T of NAPI: two lists 25 % late, the age of a record, two looks, and the longest back-off.
pub const RECORDS: Duration =
    Duration::from_secs(RELIST.as_secs() * 5 / 2 + SECOND_LOOK.as_secs() * 4 + 900);

/// The same with the hour in which a node that shows less than 90 % of what it had may delete five.
pub const BRAKED: Duration = RECORDS.saturating_add(Duration::from_secs(3600));

/// T of VMAPI where events tell it: the deadline of a request that hangs, the longest back-off, and the
/// second look of a crowd, each with the turn that follows.
const TOLD: Duration = Duration::from_secs(200);

/// Faults are over: everybody has to agree within T (`records` for NAPI), and then nobody writes any more.
pub(super) async fn settle(
    centre: &Centre,
    nodes: &[Cn],
    readers: &[Reader],
    records: Duration,
) -> anyhow::Result<()> {
    centre.truth.note("faults are over");
    centre.calm();
    for cn in nodes {
        cn.calm();
        cn.net.gate.see_all();
        cn.vms.gate.see_all();
    }
    for cn in nodes {
        within(CACHE, "V7", || checks::cache_is_fresh(cn)).await?;
    }
    for (nth, cn) in nodes.iter().enumerate().filter(|(_, cn)| centre.truth.is_braked(&cn.uuid)) {
        // The agent may have a reference view by now, which it had not where it started braked.
        steps::leak(centre, &cn.uuid, &format!("90:b8:d0:fd:{nth:02x}"))
            .map_err(anyhow::Error::msg)?;
    }
    let agreed = Instant::now();
    centre.truth.quiet();
    let right = || async { checks::napi_is_right(centre, nodes) };
    let told = || async { checks::vmapi_is_right(centre, nodes) };
    let vms = if centre.relists { TOLD + COMPARED * 5 / 4 } else { TOLD };
    tokio::try_join!(within(records, "I11", right), within(vms, "M1", told))?;
    centre.truth.note("NAPI and VMAPI are right");
    tokio::time::sleep_until(agreed + records).await;
    let written = |cn: &Cn| cn.outside.judge().writes() + cn.records.judge().writes();
    let writes = || nodes.iter().map(written).sum::<u64>();
    let before = writes();
    tokio::time::sleep(RELIST * 3 / 2).await;
    if writes() != before {
        bail!("I11: {} writes although nothing changes", writes() - before);
    }
    within(Duration::ZERO, "I11", right).await?;
    within(Duration::ZERO, "M1", told).await?;
    for (cn, reader) in nodes.iter().zip(readers) {
        reader.check(cn, centre).await;
    }
    // V10, V13: what is alive is a matter of how many nodes and listeners there are, not of what
    // they have been through.
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if alive > TASKS * nodes.len() {
        centre.truth.fault("V10", format!("{alive} tasks are alive on {} nodes", nodes.len()));
    }
    held(&centre.truth)
}

/// The tasks of a node at rest, at most: vminfod's, the agents', two listeners and their world.
const TASKS: usize = 50;

/// Waits until something holds.
pub(crate) async fn within<F>(
    limit: Duration,
    name: &str,
    mut holds: impl FnMut() -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = Result<(), String>>,
{
    let began = Instant::now();
    loop {
        match holds().await {
            Ok(()) => return Ok(()),
            Err(what) if began.elapsed() >= limit => {
                bail!("{name}: not within {limit:?} after the last fault: {what}");
            }
            Err(_) => tokio::time::sleep(Duration::from_secs(10)).await,
        }
    }
}
