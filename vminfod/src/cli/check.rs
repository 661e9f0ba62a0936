// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod check`: reads every source of this node and waits for its events; one line each. It does
//! not use the daemon. It sets a user property of one pool and removes it again. What does not answer
//! in time is named, while it is waited for and then: a pool that hangs takes nothing from the others.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use daemon::cli::{Cell, Progress, Screen, Table, Tone};
use daemon::command::{Call, Program};
use daemon::log::chain;
use tokio::time::{Instant, timeout, timeout_at};
use vm_model::parse::zone_index::lines;

use super::args::{CheckArgs, ReachArgs};
use super::client_config::ClientConfig;
use crate::node::Ctx;
use crate::node::read::{datasets, kstat, sysinfo, zone_index, zoneadm};
use crate::sources::sysevent::{Channel, Helper, signals};

/// The user property that is set and removed to cause an event.
const PROPERTY: &str = "vminfod:check";
/// What is found of a stream.
const STARTS: &str = "the event stream starts";
/// Why nothing may have come.
const PERHAPS: &str = "perhaps nothing happened: without --passive the check causes an event";

type Reason = Box<dyn std::error::Error + Send + Sync>;

/// What was found, or why the source cannot be used.
type Outcome = Result<String, Reason>;

/// Runs all checks. Returns the table, and whether all passed.
pub async fn run(args: &CheckArgs, screen: Screen) -> anyhow::Result<(String, bool)> {
    let reach = ReachArgs { url: None, config: args.config.clone() };
    let config = ClientConfig::of(&reach, args.root.clone())?;
    let ctx = config.ctx();
    let findings = {
        let waits = Waits::begin(args.timeout);
        findings(&ctx, args, &waits).await
    };
    let good = findings.iter().all(|(_, outcome)| outcome.is_ok());
    let mut table = Table::new(&["name", "state", "detail"]);
    for (name, outcome) in findings {
        let (state, detail) = match outcome {
            Ok(detail) => (Cell::toned("ok", Tone::Good), detail),
            Err(reason) => (Cell::toned("failed", Tone::Bad), chain(&*reason)),
        };
        table.row(vec![name.into(), state, detail.into()]);
    }
    Ok((table.print(&args.list.layout(), screen)?, good))
}

/// What is waited for, and how long.
struct Waits {
    limit: Duration,
    open: Mutex<BTreeSet<&'static str>>,
    shown: Progress,
}

impl Waits {
    fn begin(limit: Duration) -> Waits {
        let shown = Progress::begin("checking the node");
        Waits { limit, open: Mutex::default(), shown }
    }

    /// Waits for a finding; fails where it does not come in time.
    async fn until(&self, name: &'static str, finding: impl Future<Output = Outcome>) -> Outcome {
        self.say(|open| open.insert(name));
        let found = timeout(self.limit, finding).await;
        self.say(|open| open.remove(name));
        found.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.limit).into()))
    }

    fn say(&self, change: impl FnOnce(&mut BTreeSet<&'static str>) -> bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut open);
        let names: Vec<_> = open.iter().copied().collect();
        self.shown.say(&format!("waiting for {}", names.join(", ")));
    }
}

/// Returns what was found for each source.
async fn findings(ctx: &Ctx, args: &CheckArgs, waits: &Waits) -> [(&'static str, Outcome); 8] {
    let (zones, datasets, kstats, sysinfo, index, zone_events, (zfs_events, zfs_history)) = tokio::join!(
        waits.until("zoneadm", zones(ctx)),
        waits.until("zfs", datasets(ctx)),
        waits.until("kstat", kstats(ctx)),
        waits.until("sysinfo", sysinfo(ctx)),
        waits.until("the zone index", index(ctx)),
        zone_events(ctx, args.timeout),
        zfs_events(ctx, args),
    );
    [
        ("zoneadm", zones),
        ("zfs", datasets),
        ("kstat", kstats),
        ("sysinfo", sysinfo),
        ("zone index", index),
        ("zone events", zone_events),
        ("zfs events", zfs_events),
        ("zfs history", zfs_history),
    ]
}

async fn zones(ctx: &Ctx) -> Outcome {
    Ok(format!("{} zones", zoneadm::list(ctx).await?.rows.len()))
}

async fn datasets(ctx: &Ctx) -> Outcome {
    // Loading fails if there is no dataset at all.
    datasets::node(ctx).await?;
    Ok("listed".to_owned())
}

async fn kstats(ctx: &Ctx) -> Outcome {
    Ok(format!("{} zones", kstat::node(ctx).await?.len()))
}

async fn sysinfo(ctx: &Ctx) -> Outcome {
    let sysinfo = sysinfo::load(ctx).await?;
    let uuid = sysinfo.get("UUID").and_then(serde_json::Value::as_str);
    Ok(format!("node {}", uuid.ok_or("it has no UUID")?))
}

async fn index(ctx: &Ctx) -> Outcome {
    let place = ctx.root.zone_index();
    let index = zone_index::load(ctx).await?;
    if index.is_empty() {
        return Err(format!("{}: expected zones, found nothing", place.display()).into());
    }
    Ok(format!("{}, {} zones", place.display(), lines(&index).count()))
}

async fn zone_events(ctx: &Ctx, limit: Duration) -> Outcome {
    ready(ctx, Channel::Zones, limit).await.map(|_| STARTS.to_owned())
}

/// Checks that the stream of ZFS events starts and that events arrive.
async fn zfs_events(ctx: &Ctx, args: &CheckArgs) -> (Outcome, Outcome) {
    match ready(ctx, Channel::Datasets, args.timeout).await {
        Ok(mut helper) => (Ok(STARTS.to_owned()), arrival(ctx, args, &mut helper).await),
        Err(why) => (Err(why), Err("not tried: the event stream does not start".into())),
    }
}

async fn arrival(ctx: &Ctx, args: &CheckArgs, helper: &mut Helper) -> Outcome {
    let began = Instant::now();
    let limit = args.timeout;
    if args.passive {
        let came = event(helper, began + limit, None).await;
        came.map_err(|reason| format!("{reason}; {PERHAPS}"))?;
        return Ok("an event arrived".to_owned());
    }
    let pool = pool(ctx, limit).await?;
    let value = format!("{PROPERTY}={}", std::process::id());
    zfs(ctx, &["set", &value, &pool], limit).await?;
    let came = event(helper, Instant::now() + limit, Some(&pool)).await;
    let removed = zfs(ctx, &["inherit", PROPERTY, &pool], limit).await;
    came?;
    removed?;
    let ms = began.elapsed().as_millis();
    Ok(format!("a change of {pool} arrived, {ms} ms in all"))
}

/// The first pool.
async fn pool(ctx: &Ctx, limit: Duration) -> Outcome {
    let list = ["list", "-H", "-d", "0", "-o", "name", "-t", "filesystem"];
    let printed = zfs(ctx, &list, limit).await?;
    let pool = printed.lines().find(|name| !name.is_empty() && !name.contains('/'));
    Ok(pool.ok_or("there is no pool")?.to_owned())
}

async fn zfs(ctx: &Ctx, args: &[&str], limit: Duration) -> Outcome {
    let owned = args.iter().map(|arg| (*arg).to_owned()).collect();
    let output = ctx.commands.run(Call::new(Program::Zfs, owned, limit)).await?;
    if output.status == 0 {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (what, why) = (args.join(" "), output.complaint());
    Err(format!("zfs {what}: exit status {}: {why}", output.status).into())
}

/// Starts the helper and waits for its ready line.
async fn ready(ctx: &Ctx, channel: Channel, limit: Duration) -> Result<Helper, Reason> {
    let mut helper = Helper::start(&*ctx.commands, channel)?;
    let until = Instant::now() + limit;
    while signals(&line(&mut helper, until).await?)?.is_some() {}
    Ok(helper)
}

/// Waits for an event, of `dataset` if given.
async fn event(helper: &mut Helper, until: Instant, dataset: Option<&str>) -> Result<(), Reason> {
    loop {
        let line = line(helper, until).await?;
        let Ok(event) = vm_model::js::parse(&line) else { continue };
        let name = event["data"]["history_dsname"].as_str();
        if name.is_some() && (dataset.is_none() || name == dataset) {
            return Ok(());
        }
    }
}

async fn line(helper: &mut Helper, until: Instant) -> Result<bytes::Bytes, Reason> {
    let line = timeout_at(until, helper.line()).await.map_err(|_| "nothing arrived in time")?;
    line.map_err(|end| format!("sysevent {}", chain(&end)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_source_that_hangs_is_named_in_time_and_holds_up_no_other() {
        let (waits, began) = (Waits::begin(Duration::from_secs(10)), Instant::now());
        let (hung, good) = tokio::join!(
            waits.until("zfs", std::future::pending()),
            waits.until("kstat", async { Ok("7 zones".to_owned()) }),
        );
        assert_eq!(hung.unwrap_err().to_string(), "no answer within 10s");
        assert_eq!((good.unwrap(), began.elapsed()), ("7 zones".to_owned(), waits.limit));
    }
}
