// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `kvmd ping|status|verdicts|watch`, for people or as JSON.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use daemon::cli::names::Names;
use daemon::cli::pages;
use daemon::cli::screen::visible;
use daemon::cli::{Layout, NamedListArgs, Screen, finish, names, screen};
use daemon::exit;
use futures_util::StreamExt;
use sdc_clients::Error;
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::Lines;
use serde_json::Value;

use super::args::{Command, NAME, ReachArgs};
use super::settings;
use super::verdicts::{self, sentence};

/// A broken stream is opened again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest line of a stream; `ready` contains all verdicts.
const LINE_CAP: usize = 64 << 20;

/// Runs one of the clients.
pub async fn run(command: Command) -> ExitCode {
    let screen = Screen::of_stdout();
    let result = match command {
        Command::Ping { reach, json } => ping(&reach, json, screen).await,
        Command::Status { reach, list } => status(&reach, &list, screen).await,
        Command::Verdicts { name, reach, list } => {
            told_so_far(&reach, name.as_deref(), &list, screen).await
        }
        Command::Watch { reach, parsable, columns, long, json } => {
            let named = screen.is_terminal && !long && !parsable && !json;
            let layout = Layout { no_header: true, parsable, columns, json, ..Layout::default() };
            watch(&reach, &layout, named, screen).await.map(|()| String::new())
        }
        _ => return ExitCode::from(exit::USAGE),
    };
    finish(NAME, result)
}

fn client(reach: &ReachArgs) -> anyhow::Result<Http> {
    let agent = concat!("kvmd/", env!("CARGO_PKG_VERSION"));
    Ok(Http::new(&settings::url(reach)?, agent)?.without_retries())
}

/// Reads `/status`, which has the verdicts.
async fn read_status(reach: &ReachArgs) -> anyhow::Result<Value> {
    Ok(pages::page(NAME, &settings::url(reach)?, "status", "verdicts").await?)
}

async fn ping(reach: &ReachArgs, json: bool, screen: Screen) -> anyhow::Result<String> {
    Ok(pages::ping(NAME, &settings::url(reach)?, json, screen).await?)
}

/// Returns the aliases of the VMs, if they are `asked` for and vminfod has them.
async fn aliases(reach: &ReachArgs, asked: bool) -> Names {
    match settings::load(&reach.file).ok().and_then(|it| it.0.zones) {
        Some(zones) if asked => Names::of_node(zones.url.as_str(), NAME).await,
        _ => Names::default(),
    }
}

async fn status(reach: &ReachArgs, list: &NamedListArgs, screen: Screen) -> anyhow::Result<String> {
    let (status, layout) = (read_status(reach).await?, &list.layout());
    let names = aliases(reach, list.shows_names(screen)).await;
    if layout.asks_for_table() {
        return Ok(verdicts::instances(&status, &names, layout, screen)?);
    }
    if screen.is_terminal && !layout.json {
        return Ok(verdicts::status_lines(&status, &names, screen)?);
    }
    Ok(screen.harmless(&format!("{status:#}\n")))
}

async fn told_so_far(
    reach: &ReachArgs,
    name: Option<&str>,
    list: &NamedListArgs,
    screen: Screen,
) -> anyhow::Result<String> {
    let (status, layout) = (read_status(reach).await?, &list.layout());
    let all = || status["verdicts"].as_array().into_iter().flatten();
    let name = match name {
        Some(typed) => Some(name_of(reach, typed, &status).await?),
        None => None,
    };
    let asked: Vec<&Value> = all()
        .filter(|verdict| name.as_ref().is_none_or(|name| verdict["name"] == **name))
        .collect();
    if asked.is_empty() && !layout.asks_for_table() && !layout.json {
        let about = name.map(|name| format!(" about {}", visible(&name))).unwrap_or_default();
        return Ok(format!("no verdict{about} since the daemon's start\n"));
    }
    if layout.json && !layout.asks_for_table() {
        return Ok(
            screen.harmless(&format!("{:#}\n", Value::from_iter(asked.into_iter().cloned())))
        );
    }
    let names = aliases(reach, list.shows_names(screen)).await;
    Ok(verdicts::table(asked.into_iter(), &names, layout, screen)?)
}

/// Returns the instance that is meant: one that kvmd knows, or else a VM's zone.
async fn name_of(reach: &ReachArgs, typed: &str, status: &Value) -> anyhow::Result<String> {
    let told = status["verdicts"].as_array().into_iter().flatten();
    let told = told.filter_map(|verdict| verdict["name"].as_str());
    let watched = status["instances"].as_object().into_iter().flatten();
    let known: BTreeSet<&str> = watched.map(|(name, _)| name.as_str()).chain(told).collect();
    let names: Vec<_> = known.into_iter().map(|name| (name, name)).collect();
    match (names::find(&names, typed), settings::load(&reach.file)?.0.zones) {
        (Err(_), Some(zones)) => Ok(names::vm(zones.url.as_str(), NAME, typed).await?.uuid),
        (found, _) => Ok(found?),
    }
}

/// Prints one line per verdict; waits for a daemon that is off, and prints nothing twice.
async fn watch(
    reach: &ReachArgs,
    layout: &Layout,
    named: bool,
    screen: Screen,
) -> anyhow::Result<()> {
    // An unknown column is an error at once.
    verdicts::table(std::iter::empty(), &Names::default(), layout, screen)?;
    let http = client(reach)?;
    // A daemon that is off at the start is an error.
    read_status(reach).await?;
    let mut position: Option<(String, u64)> = None;
    loop {
        let mut call = Call::get(&["events"]);
        if let Some((epoch, seq)) = &position {
            call = call.query("epoch", epoch).query("since", seq.to_string());
        }
        if let Err(why) = follow(&http, call, (reach, named), layout, screen, &mut position).await {
            let error: Error = why.downcast()?;
            eprintln!("{NAME}: stream lost, connecting again: {error}");
            // The events have left the ring, or the daemon was restarted.
            if error.status() == Some(410) {
                position = None;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Prints a stream to its end.
async fn follow(
    http: &Http,
    call: Call,
    (reach, named): (&ReachArgs, bool),
    layout: &Layout,
    screen: Screen,
    position: &mut Option<(String, u64)>,
) -> anyhow::Result<()> {
    let mut body = http.open(call).await?.body;
    let mut lines = Lines::new(LINE_CAP);
    while let Some(piece) = body.next().await {
        lines.push(&piece?);
        while let Ok(Some(line)) = lines.next_line() {
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
            if let (Some(epoch), Some(seq)) = (event["epoch"].as_str(), event["seq"].as_u64()) {
                *position = Some((epoch.to_owned(), seq));
            }
            if layout.json {
                screen::write(&screen.harmless(&(String::from_utf8_lossy(&line) + "\n")))?;
            } else if event["type"] == "verdict" {
                // Verdicts are rare, and a VM may be younger than the command.
                let names = aliases(reach, named).await;
                let text = match layout.parsable || layout.columns.is_some() {
                    true => verdicts::table(std::iter::once(&event), &names, layout, screen)?,
                    false => sentence(&event, &names) + "\n",
                };
                screen::write(&text)?;
            }
        }
    }
    Ok(())
}
