// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The cost of an idle daemon: its sweeps and other wake-ups. It is not asked anything meanwhile,
//! since an answer costs more than a sweep; the command that each sweep runs tells when it sweeps.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use vminfod::node::root::Root;

use super::cn::Cn;
use super::limits;
use super::served::Served;
use super::table::Samples;

/// Sweeps whose cost is measured.
const SWEEPS: usize = 5;
/// Looks of the bench's own, and how long it rests before each.
const LOOKS: usize = 3;
const REST: Duration = Duration::from_secs(10);
/// How long after its command a sweep has certainly ended.
const SETTLED: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(60);

/// What sweeps come to.
#[derive(Default)]
pub(super) struct Idle {
    /// The share of a core, in percent: from the end of one sweep to the end of the next, since a
    /// fixed time would hold one more or less by chance.
    pub(super) shares: Samples,
    /// From one to the next.
    pub(super) pace: Samples,
}

/// Waits for some sweeps.
pub(super) async fn sweeps(served: &Served, cn: &Cn) -> anyhow::Result<Idle> {
    cn.ran()?;
    sweep(cn).await?;
    let mut idle = Idle::default();
    for _ in 0..SWEEPS {
        let (before, since) = (served.cpu()?, Instant::now());
        sweep(cn).await?;
        let (used, passed) = (served.cpu()? - before, since.elapsed());
        idle.shares.push_value(used.as_secs_f64() / passed.as_secs_f64() * 100.0);
        idle.pace.push(passed);
    }
    Ok(idle)
}

/// The share of a core that the looks at the files take alone, at this pace: after a rest they take
/// longer than one after the other.
pub(super) async fn looks(cn: &Cn, pace: f64) -> anyhow::Result<f64> {
    let (root, rows) = (Root::new(cn.root()), cn.rows());
    let mut took = Samples::default();
    for _ in 0..LOOKS {
        sleep(REST).await;
        took.push(limits::stat_all_below(&root, &rows)?);
    }
    Ok(took.median() / pace)
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
