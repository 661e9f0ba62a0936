// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Does the feed show what the nodes have? It is asked until it does, for so long and no longer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sdc_clients::Jitter;
use sdc_clients::fleet::{Fleet, FleetEvent, Follower, Position, Sourcing};
use tokio::time::{Instant, sleep, timeout};

use super::children::shown;
use super::judge::{Told, told};
use super::progress::Progress;
use super::site::{MIRRORS, Site, allowance};

/// A snapshot that takes longer is none.
const SNAPSHOT: Duration = Duration::from_secs(60);

/// What was told, by node.
pub(super) type Heard = BTreeMap<String, Vec<Told>>;

/// Waits until every node has sent a heartbeat.
pub(super) async fn started(
    site: &Site,
    fleet: &Fleet,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let most = allowance(site.nodes);
    let began = Instant::now();
    loop {
        let up = timeout(SNAPSHOT, fleet.nodes()).await.ok().and_then(Result::ok);
        let up = up.map_or(0, |beats| beats.len());
        if up == site.nodes {
            return Ok(());
        }
        progress.say(|| format!("{up} of {} nodes have sent a heartbeat", site.nodes));
        ensure!(began.elapsed() < most, "after {most:?}: {up} of {} nodes are heard", site.nodes);
        sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until the feed and every consumer show the union of the nodes, and every event was published.
pub(super) async fn agree(
    site: &Site,
    fleet: &Fleet,
    progress: &mut Progress,
) -> anyhow::Result<Duration> {
    let (began, truth, most) = (Instant::now(), site.truth(), allowance(site.nodes));
    loop {
        let why = match disagreement(site, fleet, &truth).await {
            Ok(None) => return Ok(began.elapsed()),
            Ok(Some(why)) => why,
            Err(error) => format!("{error:#}"),
        };
        ensure!(began.elapsed() < most, "after {most:?}: {why}");
        progress.say(|| format!("not yet: {why}"));
        sleep(Duration::from_millis(500)).await;
    }
}

/// What `CHANGES` has, by node.
pub(super) async fn changes(fleet: &Fleet, site: &Site) -> anyhow::Result<Heard> {
    let (began, most) = (Instant::now(), allowance(site.nodes));
    let found = loop {
        match fleet.changes("vms.*.*").await {
            Ok(found) => break found,
            // A busy server may be late.
            Err(error) if began.elapsed() > most => return Err(error).context("CHANGES"),
            Err(_) => sleep(Duration::from_millis(500)).await,
        }
    };
    let mut all: Heard = site.hubs.keys().map(|cn| (cn.clone(), Vec::new())).collect();
    for message in found {
        let told = told(&message.labels);
        all.entry(message.target.cn).or_default().push(told);
    }
    Ok(all)
}

async fn disagreement(
    site: &Site,
    fleet: &Fleet,
    truth: &BTreeMap<String, String>,
) -> anyhow::Result<Option<String>> {
    // A follower completes what VMS lacks from CHANGES.
    let sourcing = Sourcing::read(fleet.jetstream()).await?;
    if sourcing.lag() > 0 {
        let Sourcing { place, last } = sourcing;
        return Ok(Some(format!("VMS has come to message {place} of CHANGES, which has {last}")));
    }
    let mut follower = Follower::new(fleet, "vms.*.*", Jitter::from_seed(2));
    let synced = async {
        loop {
            match follower.next().await {
                FleetEvent::Synced => return Ok(()),
                FleetEvent::Lost(error) => return Err(error),
                _ => {}
            }
        }
    };
    timeout(SNAPSHOT, synced).await.context("no snapshot")??;
    if let Some(why) = differs("VMS", truth, &shown(follower.mirror())) {
        return Ok(Some(why));
    }
    for nth in 0..MIRRORS {
        let seen = read(&site.seen_by(nth)).unwrap_or_default();
        if let Some(why) = differs(&format!("consumer {nth}"), truth, &seen) {
            return Ok(Some(why));
        }
    }
    let beats = fleet.nodes().await?;
    let position = |cn: &String| {
        beats
            .iter()
            .find(|beat| beat.node.cn_uuid == *cn)
            .and_then(|beat| beat.node.position.clone())
    };
    let behind = site.hubs.iter().find(|(cn, hub)| {
        let (epoch, seq) = hub.position();
        position(cn) != Some(Position { epoch, seq })
    });
    Ok(behind
        .map(|(cn, hub)| format!("{cn} says {:?}, it is at {:?}", position(cn), hub.position())))
}

fn read(path: &Path) -> Option<BTreeMap<String, String>> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn differs(
    who: &str,
    truth: &BTreeMap<String, String>,
    seen: &BTreeMap<String, String>,
) -> Option<String> {
    let missing = truth.iter().find(|(vm, state)| seen.get(*vm) != Some(state));
    let ghost = seen.keys().find(|vm| !truth.contains_key(*vm));
    (missing.is_some() || ghost.is_some()).then(|| {
        let seen_as = missing.and_then(|(vm, _)| seen.get(vm));
        format!(
            "{who} shows {} VMs of {}: {missing:?} is {seen_as:?}, too many: {ghost:?}",
            seen.len(),
            truth.len()
        )
    })
}
