// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hold`, `release`, `holds`: they read and replace the file themselves, so they work whether the
//! daemon runs or not; it reads the file before each write.

use anyhow::anyhow;
use daemon::cli::{Layout, Screen, Table, Usage};
use jiff::{SignedDuration, Timestamp};

use crate::config::Config;
use crate::holds::{Hold, HoldsFile};

pub(super) fn hold(
    config: &Config,
    vm: Option<String>,
    length: Option<&str>,
    reason: String,
) -> anyhow::Result<String> {
    let length = length
        .map(|text| {
            daemon::config::parse_span(text).map_err(|why| anyhow!(Usage(format!("--for: {why}"))))
        })
        .transpose()?
        .map(|span| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX));
    if length.is_some_and(|length| length.is_zero()) {
        return Err(anyhow!(Usage("--for: must be longer than 0".to_owned())));
    }
    if reason.trim().is_empty() {
        return Err(anyhow!(Usage(
            "--reason: must not be empty; it is shown with the hold".to_owned()
        )));
    }
    let vm = vm.map(|vm| uuid_of(&vm)).transpose()?;
    let file = HoldsFile::new(&config.basics.places.state_dir);
    let held = file.hold(vm, length, reason, daemon::wall::now())?;
    Ok(describe(&held) + "\n")
}

pub(super) fn release(config: &Config, vm: Option<String>) -> anyhow::Result<String> {
    let file = HoldsFile::new(&config.basics.places.state_dir);
    let vm = vm.map(|vm| uuid_of(&vm)).transpose()?;
    let released = file.release(vm.as_deref())?;
    let what = vm.unwrap_or_else(|| "the node".to_owned());
    if released == 0 {
        return Err(anyhow!("there is no hold on {what}"));
    }
    Ok(format!("released {what}\n"))
}

pub(super) fn holds(config: &Config, layout: &Layout, screen: Screen) -> anyhow::Result<String> {
    let now = daemon::wall::now();
    let all = HoldsFile::new(&config.basics.places.state_dir).read()?;
    let held: Vec<&Hold> = all.holds.iter().collect();
    if layout.json && !layout.asks_for_table() {
        return Ok(format!("{:#}\n", serde_json::to_value(held)?));
    }
    if held.is_empty() && !layout.asks_for_table() {
        return Ok("no holds\n".to_owned());
    }
    let mut table = Table::new(&["vm", "until", "reason", "since"]).usually(3);
    let at = |time: Timestamp| format!("{time:.0}");
    for hold in held {
        table.row(vec![
            hold.vm.as_deref().unwrap_or("the whole node").into(),
            match hold.until {
                None => "released".to_owned(),
                Some(until) if until > now => at(until),
                Some(until) => format!("{} (past)", at(until)),
            }
            .into(),
            hold.reason.as_str().into(),
            at(hold.since).into(),
        ]);
    }
    Ok(table.print(layout, screen)?)
}

/// Checks that the VM is a uuid: a hold on another name would protect nothing.
fn uuid_of(vm: &str) -> anyhow::Result<String> {
    let parsed = uuid::Uuid::try_parse(vm);
    Ok(parsed.map_err(|err| anyhow!(Usage(format!("--vm {vm}: {err}"))))?.hyphenated().to_string())
}

fn describe(hold: &Hold) -> String {
    let what = hold.vm.as_deref().unwrap_or("the whole node");
    let until =
        hold.until.map_or_else(|| "until released".to_owned(), |at| format!("until {at:.0}"));
    format!("held {what} {until}: {}", hold.reason)
}
