// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hold`, `extend`, `release`, `holds`: they read and replace the file themselves, so they work whether the
//! daemon runs or not; it reads the file before each write.

use anyhow::anyhow;
use daemon::agent::Verbs as _;
use daemon::cli::names::{self, Names};
use daemon::cli::screen::visible;
use daemon::cli::{NamedListArgs, Screen, Table, Usage, author, left};
use jiff::{SignedDuration, Timestamp};

use super::args::Verb;
use crate::config::Config;
use crate::holds::{Hold, HoldsFile};

pub(super) async fn hold(
    config: &Config,
    vm: Option<String>,
    length: Option<&str>,
    reason: String,
) -> anyhow::Result<String> {
    let length = length.map(length_of).transpose()?;
    if reason.trim().is_empty() {
        return Err(anyhow!(Usage(
            "--reason: must not be empty; it is shown with the hold".to_owned()
        )));
    }
    let uuid = uuid_of(config, vm.clone()).await?;
    let held = holds_file(config).hold(uuid, length, reason, author(), daemon::wall::now())?;
    Ok(describe(&held, vm.as_deref()) + "\n")
}

pub(super) async fn extend(
    config: &Config,
    vm: Option<String>,
    length: &str,
) -> anyhow::Result<String> {
    let (length, uuid) = (length_of(length)?, held_uuid(config, vm.clone()).await?);
    match holds_file(config).extend(uuid.as_deref(), length, daemon::wall::now())? {
        Some(held) => Ok(describe(&held, vm.as_deref()) + "\n"),
        None => Err(none_on(called(uuid.as_deref(), vm.as_deref()))),
    }
}

pub(super) async fn release(config: &Config, vm: Option<String>) -> anyhow::Result<String> {
    let uuid = held_uuid(config, vm.clone()).await?;
    let called = called(uuid.as_deref(), vm.as_deref());
    if holds_file(config).release(uuid.as_deref())? == 0 {
        return Err(none_on(called));
    }
    Ok(format!("released {called}\n"))
}

/// Returns how a sentence calls what is held: by the alias that was typed, else by the whole uuid.
fn called(uuid: Option<&str>, typed: Option<&str>) -> String {
    match (uuid, typed) {
        (Some(uuid), Some(typed)) if !uuid.starts_with(&typed.to_lowercase()) => visible(typed),
        (Some(uuid), _) => uuid.to_owned(),
        (None, _) => "the whole node".to_owned(),
    }
}

fn holds_file(config: &Config) -> HoldsFile {
    HoldsFile::new(&config.basics.places.state_dir)
}

fn none_on(called: String) -> anyhow::Error {
    anyhow!("there is no hold on {called}")
}

fn length_of(text: &str) -> anyhow::Result<SignedDuration> {
    let wrong = |why: &str| anyhow!(Usage(format!("--for: {why}")));
    let span = daemon::config::parse_span(text).map_err(|why| wrong(&why))?;
    if span.is_zero() {
        return Err(wrong("must be longer than 0"));
    }
    Ok(SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX))
}

pub(super) async fn holds(
    config: &Config,
    list: &NamedListArgs,
    screen: Screen,
) -> anyhow::Result<String> {
    let layout = &list.layout();
    let now = daemon::wall::now();
    let all = holds_file(config).read()?;
    let held: Vec<&Hold> = all.holds.iter().collect();
    if layout.json && !layout.asks_for_table() {
        return Ok(format!("{:#}\n", serde_json::to_value(held)?));
    }
    if held.is_empty() && !layout.asks_for_table() {
        return Ok("no holds\n".to_owned());
    }
    let known = if list.shows_names(screen) { config.names().await } else { Names::default() };
    let mut table = Table::new(&["vm", "until", "left", "by", "reason", "since"]).usually(5);
    let at = |time: Timestamp| format!("{time:.0}");
    for hold in held {
        table.row(vec![
            hold.vm.as_deref().map_or("the whole node", |vm| known.name(vm)).into(),
            match hold.until {
                None => "released".to_owned(),
                Some(until) if until > now => at(until),
                Some(until) => format!("{} (past)", at(until)),
            }
            .into(),
            hold.until.map_or_else(|| "-".to_owned(), |until| left(until, now)).into(),
            hold.by.as_str().into(),
            hold.reason.as_str().into(),
            at(hold.since).into(),
        ]);
    }
    Ok(table.print(layout, screen)?)
}

/// Returns the uuid of a VM as it was typed. A hold on a name that is no VM's would protect nothing; one on
/// a VM that is not here is placed with a warning, since the VM may be on its way.
async fn uuid_of(config: &Config, typed: Option<String>) -> anyhow::Result<Option<String>> {
    let Some(typed) = typed else { return Ok(None) };
    let named = names::vm(&config.services.vminfod, Verb::NAME, &typed).await?;
    if named.is_here == Some(false) {
        eprintln!("{}: warning: the node has no VM {}", Verb::NAME, named.uuid);
    }
    Ok(Some(named.uuid))
}

/// The same for a hold that is there; its VM need not be here.
async fn held_uuid(config: &Config, typed: Option<String>) -> anyhow::Result<Option<String>> {
    let holds = holds_file(config).read()?.holds;
    let held: Vec<_> = holds.iter().filter_map(|hold| Some((hold.vm.as_deref()?, ""))).collect();
    match typed.as_ref().and_then(|typed| names::find(&held, typed).ok()) {
        Some(uuid) => Ok(Some(uuid)),
        None => uuid_of(config, typed).await,
    }
}

fn describe(hold: &Hold, typed: Option<&str>) -> String {
    let what = called(hold.vm.as_deref(), typed);
    let until = hold.until.map_or_else(
        || "until released".to_owned(),
        |at| format!("until {at:.0} (for {})", left(at, daemon::wall::now())),
    );
    format!("held {what} {until} by {}: {}", hold.by, hold.reason)
}
