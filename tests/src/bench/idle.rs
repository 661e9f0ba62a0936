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

use super::cn::Cn;
use super::served::Served;

/// Sweeps, ten seconds apart, whose cost is measured: whole ones, since a fixed time would hold one
/// more or less by chance.
const SWEEPS: usize = 3;
/// How long after its command a sweep has certainly ended.
const SETTLED: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(90);

/// The share of a core that it takes.
pub(super) async fn share(served: &Served, cn: &Cn) -> anyhow::Result<f64> {
    cn.ran()?;
    sweeps(cn, 1).await?;
    let (before, since) = (served.cpu()?, Instant::now());
    sweeps(cn, SWEEPS).await?;
    Ok((served.cpu()? - before).as_secs_f64() / since.elapsed().as_secs_f64())
}

/// Waits until so many more sweeps have ended.
async fn sweeps(cn: &Cn, count: usize) -> anyhow::Result<()> {
    let end = Instant::now() + LIMIT;
    let mut seen = 0;
    while seen < count {
        if Instant::now() > end {
            bail!("no sweep comes");
        }
        sleep(Duration::from_millis(50)).await;
        seen += cn.ran()?.iter().filter(|line| line.starts_with("zoneadm list")).count();
    }
    sleep(SETTLED).await;
    Ok(())
}
