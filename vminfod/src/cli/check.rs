// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod check`: reads every source of this node and waits for its events; one line each. It does
//! not use the daemon. It sets a user property of one pool and removes it again.

use std::sync::Arc;
use std::time::Duration;

use daemon::cli::{Cell, Progress, Screen, Table, Tone};
use sdc_clients::vminfod::Lines;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

use super::args::{CheckArgs, ReachArgs};
use super::problem::Problem;
use super::settings::Settings;
use crate::node::Ctx;
use crate::node::commands::{Commands, Follow, Tool};
use crate::node::read::{datasets, kstat, sysinfo, zoneadm};
use crate::sources::sysevent::{Channel, signals};

/// The user property that is set and removed to cause an event.
const PROPERTY: &str = "vminfod:check";
/// Longest line of an event stream.
const LINE_CAP: usize = 1 << 20;
/// How long a change of a property may take.
const SET_LIMIT: Duration = Duration::from_secs(30);
/// Largest zone index that is read.
const INDEX_CAP: u64 = 64 << 20;

/// The result for one source.
struct Finding {
    name: &'static str,
    outcome: Result<String, String>,
}

/// Runs all checks. Returns the table, and whether all passed.
pub async fn run(args: &CheckArgs, screen: Screen) -> Result<(String, bool), Problem> {
    let reach = ReachArgs { url: None, config: args.config.clone() };
    let settings = Settings::of(&reach, args.root.clone())?;
    let ctx = settings.ctx();
    let findings = {
        let _shown = Progress::begin("checking the node");
        findings(&ctx, args).await
    };
    let good = findings.iter().all(|finding| finding.outcome.is_ok());
    let mut table = Table::new(&["name", "state", "detail"]);
    for Finding { name, outcome } in findings {
        let (state, detail) = match outcome {
            Ok(detail) => (Cell::toned("ok", Tone::Good), detail),
            Err(reason) => (Cell::toned("failed", Tone::Bad), reason),
        };
        table.row(vec![name.into(), state, detail.into()]);
    }
    Ok((table.print(&args.list.layout(), screen)?, good))
}

async fn findings(ctx: &Ctx, args: &CheckArgs) -> Vec<Finding> {
    let (zones, datasets, kstats, sysinfo, index, zone_events, zfs_events) = tokio::join!(
        zones(ctx),
        datasets(ctx),
        kstats(ctx),
        sysinfo(ctx),
        index(ctx),
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
    ]
    .into_iter()
    .map(|(name, outcome)| Finding { name, outcome })
    .chain(zfs_events)
    .collect()
}

async fn zones(ctx: &Ctx) -> Result<String, String> {
    let rows = zoneadm::list(ctx).await.map_err(|error| chain(&error))?;
    Ok(format!("{} zones", rows.rows.len()))
}

async fn datasets(ctx: &Ctx) -> Result<String, String> {
    // Loading fails if there is no dataset at all.
    datasets::node(ctx).await.map_err(|error| chain(&error))?;
    Ok("listed".to_owned())
}

async fn kstats(ctx: &Ctx) -> Result<String, String> {
    let kstats = kstat::node(ctx).await.map_err(|error| chain(&error))?;
    Ok(format!("{} zones", kstats.len()))
}

async fn sysinfo(ctx: &Ctx) -> Result<String, String> {
    let sysinfo = sysinfo::load(ctx).await.map_err(|error| chain(&error))?;
    let uuid = sysinfo.get("UUID").and_then(serde_json::Value::as_str);
    uuid.map(|uuid| format!("node {uuid}")).ok_or_else(|| "it has no UUID".to_owned())
}

async fn index(ctx: &Ctx) -> Result<String, String> {
    let path = ctx.root.zone_index();
    let place = path.display().to_string();
    let read = ctx.root.on_files(&place, move |root| root.read_file(&path, INDEX_CAP)).await;
    match read.flatten().map(|content| content.bytes) {
        Ok(bytes) => Ok(format!("{place}, {} lines", bytes.split(|b| *b == b'\n').count() - 1)),
        Err(error) => Err(format!("{place}: {}", chain(&error))),
    }
}

async fn zone_events(ctx: &Ctx, limit: Duration) -> Result<String, String> {
    let mut stream = Stream::begin(&ctx.commands, Channel::Zones)?;
    stream.ready(Instant::now() + limit).await?;
    Ok("the event stream starts".to_owned())
}

/// Checks that the stream of ZFS events starts and that events arrive.
async fn zfs_events(ctx: &Ctx, args: &CheckArgs) -> Vec<Finding> {
    let begun = async {
        let mut stream = Stream::begin(&ctx.commands, Channel::Datasets)?;
        stream.ready(Instant::now() + args.timeout).await?;
        Ok::<_, String>(stream)
    };
    let (starts, arrive) = ("zfs events", "zfs history");
    match begun.await {
        Ok(mut stream) => {
            let arrived = arrival(ctx, args, &mut stream).await;
            let started = Ok("the event stream starts".to_owned());
            vec![
                Finding { name: starts, outcome: started },
                Finding { name: arrive, outcome: arrived },
            ]
        }
        Err(reason) => {
            let without = Err("not tried: the event stream does not start".to_owned());
            vec![
                Finding { name: starts, outcome: Err(reason) },
                Finding { name: arrive, outcome: without },
            ]
        }
    }
}

async fn arrival(ctx: &Ctx, args: &CheckArgs, stream: &mut Stream) -> Result<String, String> {
    let began = Instant::now();
    let limit = args.timeout;
    if args.passive {
        stream.event(began + limit, None).await.map_err(|reason| {
            format!(
                "{reason}; perhaps nothing happened: without --passive the check causes an event"
            )
        })?;
        return Ok("an event arrived".to_owned());
    }
    let pool = pool(ctx).await?;
    let value = format!("{PROPERTY}={}", std::process::id());
    zfs(ctx, &["set", &value, &pool]).await?;
    let came = stream.event(Instant::now() + limit, Some(&pool)).await;
    let removed = zfs(ctx, &["inherit", PROPERTY, &pool]).await;
    came?;
    removed?;
    let ms = began.elapsed().as_millis();
    Ok(format!("a change of {pool} arrived, {ms} ms in all"))
}

/// The first pool.
async fn pool(ctx: &Ctx) -> Result<String, String> {
    let list = ["list", "-H", "-d", "0", "-o", "name", "-t", "filesystem"];
    let printed = zfs(ctx, &list).await?;
    let pool = printed.lines().find(|name| !name.is_empty() && !name.contains('/'));
    pool.map(str::to_owned).ok_or_else(|| "there is no pool".to_owned())
}

async fn zfs(ctx: &Ctx, args: &[&str]) -> Result<String, String> {
    let owned: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let output = ctx.commands.run(Tool::Zfs, owned, SET_LIMIT).await;
    let output = output.map_err(|error| chain(&error))?;
    if output.status == 0 {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (what, why) = (args.join(" "), output.complaint());
    Err(format!("zfs {what}: exit status {}: {why}", output.status))
}

/// A running `sysevent`.
struct Stream {
    child: Follow,
    lines: Lines,
}

impl Stream {
    fn begin(commands: &Arc<dyn Commands>, channel: Channel) -> Result<Stream, String> {
        let child = commands.follow(Tool::Sysevent, channel.args());
        let child = child.map_err(|error| chain(&error))?;
        Ok(Stream { child, lines: Lines::new(LINE_CAP) })
    }

    /// Waits for the ready line.
    async fn ready(&mut self, until: Instant) -> Result<(), String> {
        loop {
            let line = self.line(until).await?;
            if signals(&line).map_err(|error| error.to_string())?.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits for an event, of `dataset` if given.
    async fn event(&mut self, until: Instant, dataset: Option<&str>) -> Result<(), String> {
        loop {
            let line = self.line(until).await?;
            let Ok(event) = vm_model::js::parse(&line) else { continue };
            let name = event.get("data").and_then(|data| data.get("history_dsname"));
            let name = name.and_then(serde_json::Value::as_str);
            if name.is_some() && (dataset.is_none() || name == dataset) {
                return Ok(());
            }
        }
    }

    async fn line(&mut self, until: Instant) -> Result<bytes::Bytes, String> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some(line) = self.lines.next_line().map_err(|error| error.to_string())? {
                return Ok(line);
            }
            let read = timeout_at(until, self.child.stdout.read(&mut piece)).await;
            match read.map_err(|_| "nothing arrived in time".to_owned())? {
                Ok(0) => return Err(self.ended().await),
                Ok(count) => self.lines.push(piece.get(..count).unwrap_or_default()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Describes why the child ended.
    async fn ended(&mut self) -> String {
        let mut complaint = Vec::new();
        let soon = Instant::now() + Duration::from_secs(1);
        let mut stderr = (&mut self.child.stderr).take(1024);
        let _late = timeout_at(soon, stderr.read_to_end(&mut complaint)).await;
        let status = timeout_at(soon, self.child.wait()).await;
        let text = String::from_utf8_lossy(&complaint);
        match status {
            Ok(status) => format!("sysevent ended with status {status}: {}", text.trim()),
            Err(_) => "sysevent closed its output".to_owned(),
        }
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    daemon::log::chain(error)
}
