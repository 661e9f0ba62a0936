// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a daemon costs while nothing happens: its sweeps, and whatever else wakes it up.
//!
//! Must never ask it anything meanwhile: an answer costs more than a sweep. When it sweeps is told
//! by the command that each sweep runs.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use vminfod::root::Root;

use super::cn::Cn;
use super::limits;
use super::served::Served;
use super::table::Samples;

/// Sweeps, ten seconds apart, whose cost is measured.
const SWEEPS: usize = 5;
/// How long after its command a sweep has certainly ended.
const SETTLED: Duration = Duration::from_secs(2);
/// From one sweep to the next.
const PACE: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

/// The share of a core that it takes, in percent: from the end of one sweep to the end of the next,
/// since a fixed time would hold one more or less by chance.
pub(super) async fn share(served: &Served, cn: &Cn) -> anyhow::Result<Samples> {
    cn.ran()?;
    sweep(cn).await?;
    let mut shares = Samples::default();
    for _ in 0..SWEEPS {
        let (before, since) = (served.cpu()?, Instant::now());
        sweep(cn).await?;
        let used = served.cpu()? - before;
        shares.push_value(used.as_secs_f64() / since.elapsed().as_secs_f64() * 100.0);
    }
    Ok(shares)
}

/// The share of a core that the looks at the files take alone, one at the pace of the sweeps: after
/// such a rest they take longer than one after the other.
pub(super) async fn looks(cn: &Cn) -> anyhow::Result<f64> {
    let (root, rows) = (Root::new(cn.root()), limits::rows(cn));
    let mut took = Samples::default();
    for _ in 0..SWEEPS {
        sleep(PACE).await;
        took.push(limits::stat_all_below(&root, &rows)?);
    }
    Ok(took.median() / PACE.as_secs_f64())
}

/// Waits until one more sweep has ended.
async fn sweep(cn: &Cn) -> anyhow::Result<()> {
    let end = Instant::now() + LIMIT;
    while !cn.ran()?.iter().any(|line| line.starts_with("zoneadm list")) {
        if Instant::now() > end {
            bail!("no sweep comes");
        }
        sleep(Duration::from_millis(50)).await;
    }
    sleep(SETTLED).await;
    Ok(())
}
