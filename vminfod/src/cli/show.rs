// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod ping|status|vms|vm`: the daemon's answers as JSON or, on a terminal, as tables.

use std::time::Duration;

use anyhow::bail;
use daemon::cli::pages::{PATIENCE, fields};
use daemon::cli::screen::visible;
use daemon::cli::{Layout, Progress, Screen, Tone, Usage, facts, names, span};
use sdc_clients::http::Call;
use sdc_clients::vminfod::VmFields as _;
use serde_json::Value;

use super::args::{NAME, PlainArgs, ReachArgs, StatusArgs, VmArgs, VmsArgs};
use super::client_config::ClientConfig;
use super::supply::{FromDaemon, SupplyError};
use super::vmadm::Failure;
use super::vmadm::list::Listing;
use super::vmadm::value::{at, items, pretty, text_form};

/// Deadline of a synchronous read, which waits for the node's commands.
const SYNC: Duration = Duration::from_secs(150);

/// A client of the daemon.
pub fn daemon(reach: &ReachArgs) -> anyhow::Result<FromDaemon> {
    let config = ClientConfig::of(reach, None)?;
    Ok(FromDaemon::new(&config.url, NAME)?)
}

/// `ping`
pub async fn ping(args: &PlainArgs, screen: Screen) -> anyhow::Result<String> {
    let call = Call::get(&["ping"]).timeout(PATIENCE);
    let value = daemon(&args.reach)?.object(call, "ping").await?;
    if screen.is_terminal && !args.json {
        return Ok(screen.paint(Tone::Good, "pong") + "\n");
    }
    Ok(json(&value, screen))
}

/// `status`
pub async fn status(args: &StatusArgs, screen: Screen) -> anyhow::Result<String> {
    let call = Call::get(&["status"]).timeout(PATIENCE);
    let call = if args.full { call.query("full", "true") } else { call };
    let value = daemon(&args.reach)?.object(call, "numVms").await?;
    let layout = args.list.layout();
    if layout.asks_for_table() {
        return Ok(fields(&value, &layout, screen)?);
    }
    if screen.is_terminal && !layout.json {
        return Ok(status_lines(&value, screen));
    }
    Ok(json(&value, screen))
}

/// `vms`
pub async fn vms(args: &VmsArgs, screen: Screen) -> anyhow::Result<String> {
    // `=~` begins a pattern.
    let states = args.filters.iter().filter_map(|filter| filter.strip_prefix("state="));
    states.filter(|state| !state.starts_with('~')).try_for_each(names::is_state)?;
    let daemon = daemon(&args.reach)?;
    let (call, _shown) = reading(Call::get(&["vms"]), args.sync);
    let vms = daemon.list(call).await?;
    let layout = args.list.layout();
    let rows = as_rows(&layout, screen);
    let layout = Layout { no_header: layout.no_header || layout.parsable, ..layout };
    let listing = Listing::of(layout, &args.filters).map_err(wrong)?;
    if !rows {
        return Ok(json(&listing.objects(vms).map_err(wrong)?, screen));
    }
    Ok(screen.harmless(&listing.print(vms).map_err(wrong)?))
}

/// An unknown column or filter is wrong usage here (2); in vmadm it is a failure (1).
fn wrong(failure: Failure) -> Usage {
    match failure {
        Failure::Failed(text) => Usage(text),
        Failure::Usage(text) => Usage(text.unwrap_or_default()),
    }
}

/// `vm`
pub async fn vm(args: &VmArgs, screen: Screen) -> anyhow::Result<String> {
    let daemon = daemon(&args.reach)?;
    let name = name_of(&daemon, &args.name).await?;
    let (call, _shown) = reading(Call::get(&["vms", &name]), args.sync);
    let value = match daemon.object(call, "zonename").await {
        Err(SupplyError::Status(404)) => bail!("there is no VM {name}"),
        other => other?,
    };
    let layout = args.list.layout();
    if !as_rows(&layout, screen) {
        return Ok(json(&value, screen));
    }
    Ok(fields(&value, &layout, screen)?)
}

/// Returns the name of the zone that is meant: the alias or the beginning of the uuid of one VM stands for
/// it; anything else stays as it was typed.
pub async fn name_of(daemon: &FromDaemon, typed: &str) -> anyhow::Result<String> {
    if uuid::Uuid::try_parse(typed).is_ok() {
        return Ok(typed.to_owned());
    }
    let vms = daemon.list(Call::get(&["vms"])).await?;
    if vms.iter().any(|vm| vm.zonename() == Some(typed) || vm.uuid() == Some(typed)) {
        return Ok(typed.to_owned());
    }
    let known = vms.iter().map(|vm| (vm.uuid().unwrap_or(""), vm.alias().unwrap_or("")));
    Ok(names::find(&known.collect::<Vec<_>>(), typed)?)
}

/// Returns the call as `--sync` says, and the progress to show meanwhile.
fn reading(call: Call, sync: bool) -> (Call, Progress) {
    match sync {
        true => {
            let shown = Progress::begin("vminfod is reading the node");
            (call.query("sync", "true").timeout(SYNC), shown)
        }
        false => (call, Progress::begin("asking vminfod")),
    }
}

/// Returns true if a table is printed instead of the whole answer.
fn as_rows(layout: &Layout, screen: Screen) -> bool {
    layout.asks_for_table() || (screen.is_terminal && !layout.json)
}

fn json(value: &Value, screen: Screen) -> String {
    screen.harmless(&(pretty(value) + "\n"))
}

/// `/status` as lines of text, faults in colour.
fn status_lines(status: &Value, screen: Screen) -> String {
    let at = |path: &str| at(status, path);
    let shown =
        |path: &str| visible(&at(path).and_then(text_form).unwrap_or_else(|| "-".to_owned()));
    let count = |path: &str| items(at(path)).len();
    let members = |path: &str| at(path).and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| visible(value.as_str().unwrap_or("-"));
    // A VM that cannot be read by its alias too, so that it can be found with either.
    let named = |zone: &str| match status["errors"][zone]["alias"].as_str() {
        Some(alias) => format!("{} {}", visible(alias), visible(zone)),
        None => visible(zone),
    };
    let bad = |text: &str| screen.paint(Tone::Bad, text);
    let painted = |good: bool, other: Tone, text: &str| {
        screen.paint(if good { Tone::Good } else { other }, text)
    };
    let state = painted(shown("state") == "running", Tone::Odd, &shown("state"));
    let rss = at("memory.rss").and_then(Value::as_f64).unwrap_or(0.0) / 1_048_576.0;
    let (now, waiting) = ("queue.vasync_queue.npending", "queue.vasync_queue.nqueued");
    let mut lines = vec![
        ("state", format!("{state} ({})", shown("status"))),
        ("VMs", shown("numVms")),
        ("up", short(&shown("uptime"))),
        ("pid", shown("pid")),
        ("memory", format!("{rss:.1} MiB")),
        ("last refresh", ago(&shown("lastRefresh"))),
        ("reading", format!("{} now, {} waiting", shown(now), shown(waiting))),
        ("listeners", count("eventsListeners").to_string()),
    ];
    for (name, state) in members("sources") {
        let state = text(state);
        let state = painted(state == "running", Tone::Bad, &state);
        lines.push(("source", format!("{} {state}", visible(name))));
    }
    if at("stale") == Some(&Value::Bool(true)) {
        let text = "a source of the whole node has not answered for two refreshes: vminfod check";
        lines.push(("stale", bad(text)));
    }
    for error in items(at("refreshErrors")) {
        let error = format!("{} ({} ago)", text(&error["err"]), short(&text(&error["ago"])));
        lines.push(("refresh error", bad(&error)));
    }
    for (zone, trouble) in members("errors") {
        let (source, message) = (text(&trouble["source"]), text(&trouble["message"]));
        // Most messages begin with their source.
        let why =
            if message.starts_with(&source) { message } else { format!("{source}: {message}") };
        lines.push(("unreadable", bad(&format!("{}: {why}", named(zone)))));
    }
    if count("incomplete") > 0 {
        let zones = items(at("incomplete")).into_iter();
        let zones: Vec<String> = zones.map(|zone| named(zone.as_str().unwrap_or("-"))).collect();
        lines.push(("incomplete", bad(&zones.join(" "))));
    }
    if at("zfs").is_some() {
        let zfs = format!("{} (listed: {})", shown("zfs.changes"), ago(&shown("zfs.listedAgo")));
        let announced = at("zfs.announced") == Some(&Value::Bool(true));
        lines.push(("zfs", painted(announced, Tone::Bad, &zfs)));
    }
    for listener in items(at("eventsListeners")) {
        let (agent, since) = (text(&listener["userAgent"]), text(&listener["createdAgo"]));
        lines.push(("listener", format!("{agent} for {}", short(&since))));
    }
    if at("fswatcher").is_some() {
        let (on, off) = (count("fswatcher.watching"), count("fswatcher.not_yet_watching"));
        lines.push(("files", format!("{on} watched, {off} not there yet")));
        for entry in items(at("refreshLog")) {
            let (changed, when) = (items(entry.get("vmChanges")).len(), text(&entry["endedAgo"]));
            lines.push(("refresh", format!("found {changed} changed VMs {} ago", short(&when))));
        }
    }
    facts(&lines)
}

/// The short form of `12.593138s (12.59s)`.
fn short(text: &str) -> String {
    let seconds = text.split_once("s (").and_then(|(seconds, _)| seconds.parse().ok());
    let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    length.map_or_else(|| text.to_owned(), span)
}

fn ago(text: &str) -> String {
    if text == "-" { "none yet".to_owned() } else { format!("{} ago", short(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_for_people() {
        let status = json!({
            "state": "running", "status": "working", "uptime": "12.5s (12.5s)", "numVms": 3,
            "pid": 7, "memory": {"rss": 10_485_760}, "lastRefresh": null,
            "queue": {"vasync_queue": {"npending": 1, "nqueued": 0}},
            "refreshErrors": [{"err": "zfs\u{1b}[2J", "ago": "1.0s (1s)"}],
            "eventsListeners": {"u": {"userAgent": "x\u{7}", "createdAgo": "2.0s (2s)"}},
            "errors": {
                "z0": {"alias": "web\u{7}", "source": "zone_xml", "message": "zone_xml /etc/zones/z0.xml: line 6"},
                "z1": {"alias": null, "source": "datasets", "message": "no answer"},
            },
            "incomplete": ["z0", "z\u{7}"],
            "zfs": {"announced": false, "listedAgo": "61.0s (1m)", "changes": "the zfs event source is down: filesystems …"},
        });
        let screen = Screen { is_terminal: true, colour: false };
        let text = status_lines(&status, screen);
        for line in [
            "state          running (working)\n",
            "up             12s\n",
            "last refresh   none yet\n",
            "refresh error  zfs\\u001b[2J (1s ago)\n",
            "listener       x\\u0007 for 2s\n",
            "unreadable     web\\u0007 z0: zone_xml /etc/zones/z0.xml: line 6\n",
            "unreadable     z1: datasets: no answer\n",
            "incomplete     web\\u0007 z0 z\\u0007\n",
            "zfs            the zfs event source is down: filesystems … (listed: 1m1s ago)\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
    }
}
