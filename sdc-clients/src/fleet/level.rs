// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Gives the servers of a stream the same messages. Each that has others than the fullest one drops its copy and gets
//! that one's anew, one server after another: the others keep theirs all the time, so that a server that dies
//! meanwhile takes no message with it. What is cut in the middle [`super::make`] ends.

use std::time::Duration;

use async_nats::jetstream::stream::Info;
use tokio::time::{Instant, sleep};

use super::error::FleetError;
use super::read::{Fleet, on};
use super::replicas::Differences;
use super::streams::{drop_from, raise, step_down};

/// How often another server is drawn to lead: of three the one that is meant is missed once in 4,000 times.
const DRAWS: u32 = 12;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// What takes longer is left to the next comparison.
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives each server what the fullest one has.
///
/// # Errors
/// If a server is away or behind, or JetStream refuses, or does not answer.
pub async fn level(
    fleet: &Fleet,
    stream: &'static str,
    found: &Differences,
) -> Result<(), FleetError> {
    lead(fleet, stream, &found.fullest).await?;
    for server in &found.others {
        until(fleet, stream, |info| is_whole(info, None)).await?;
        if leader(&info(fleet, stream).await?) != Some(found.fullest.as_str()) {
            return Err(FleetError::away(format!(
                "{} does not lead {stream} any more",
                found.fullest
            )));
        }
        renew(fleet, stream, server).await?;
    }
    Ok(())
}

/// Takes a server's copy of a stream away and gives it that of the others.
///
/// # Errors
/// If this one leads, another one is away or behind, or JetStream refuses, or does not answer.
pub async fn renew(fleet: &Fleet, stream: &'static str, server: &str) -> Result<(), FleetError> {
    until(fleet, stream, |info| is_whole(info, Some(server))).await?;
    drop_from(fleet.jetstream(), stream, server).await?;
    let left = until(fleet, stream, |info| !has(info, server)).await?;
    if on(&left) < left.config.num_replicas {
        raise(fleet.jetstream(), &left).await?;
    }
    // The servers may say that it is done and find no leader.
    until(fleet, stream, is_on_all).await?;
    Ok(())
}

/// Lets this server lead the stream.
async fn lead(fleet: &Fleet, stream: &'static str, server: &str) -> Result<(), FleetError> {
    for _ in 0..DRAWS {
        let now = until(fleet, stream, |info| is_whole(info, None)).await?;
        if leader(&now) == Some(server) {
            return Ok(());
        }
        step_down(fleet.jetstream(), stream).await?;
    }
    Err(FleetError::away(format!("{server} has most of {stream}, and does not come to lead it")))
}

async fn info(fleet: &Fleet, stream: &'static str) -> Result<Info, FleetError> {
    Ok(fleet.stream(stream).await?.cached_info().clone())
}

/// Looks until it is so.
async fn until(
    fleet: &Fleet,
    stream: &'static str,
    is_so: impl Fn(&Info) -> bool,
) -> Result<Info, FleetError> {
    let end = Instant::now() + PATIENCE;
    loop {
        // While there is no leader there is no answer.
        match info(fleet, stream).await {
            Ok(info) if is_so(&info) => return Ok(info),
            Ok(_) if Instant::now() >= end => {
                let why = "is away or behind, or it is on too few";
                return Err(FleetError::away(format!("a server of {stream} {why}")));
            }
            Err(error) if Instant::now() >= end => return Err(error),
            _ => sleep(LOOK).await,
        }
    }
}

fn leader(info: &Info) -> Option<&str> {
    info.cluster.as_ref()?.leader.as_deref()
}

fn has(info: &Info, server: &str) -> bool {
    let others = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
    leader(info) == Some(server) || others.into_iter().any(|it| it.name == server)
}

/// Returns whether it is led, and on as many servers as it should be, each of which has all of it; `but` does not lead
/// it, and need not have it.
fn is_whole(info: &Info, but: Option<&str>) -> bool {
    let mut others = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
    let have_all = others.all(|it| {
        but == Some(it.name.as_str()) || (!it.offline && it.current && it.lag.unwrap_or(0) == 0)
    });
    let is_led = leader(info).is_some_and(|leads| but != Some(leads));
    have_all && is_led && is_on_all(info)
}

fn is_on_all(info: &Info) -> bool {
    on(info) >= info.config.num_replicas
}
