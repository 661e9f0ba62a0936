// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hold`, `release`, `holds`: they read and replace the file themselves, so that they work while
//! the daemon is off; it reads the file before each write.

use anyhow::anyhow;
use jiff::{SignedDuration, Timestamp};

use super::{Files, Usage, load, print, show_json};
use crate::holds::{Hold, HoldsFile};

pub(super) fn hold(
    files: &Files,
    vm: Option<String>,
    length: Option<&str>,
    reason: String,
) -> anyhow::Result<()> {
    let length = length
        .map(|text| {
            daemon::config::parse_span(text).map_err(|why| anyhow!(Usage(format!("--for: {why}"))))
        })
        .transpose()?
        .map(|span| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX));
    if length.is_some_and(|length| length.is_zero()) {
        return Err(anyhow!(Usage("--for: a hold of no length would hold nothing".to_owned())));
    }
    if reason.trim().is_empty() {
        return Err(anyhow!(Usage(
            "--reason: say why; it is shown wherever the hold is".to_owned()
        )));
    }
    let vm = vm.map(|vm| uuid_of(&vm)).transpose()?;
    let file = HoldsFile::new(&load(files)?.state_dir);
    let held = file.hold(vm, length, reason, Timestamp::now())?;
    print(&format!("{}\n", describe(&held)));
    Ok(())
}

pub(super) fn release(files: &Files, vm: Option<String>) -> anyhow::Result<()> {
    let file = HoldsFile::new(&load(files)?.state_dir);
    let vm = vm.map(|vm| uuid_of(&vm)).transpose()?;
    let released = file.release(vm.as_deref(), Timestamp::now())?;
    let what = vm.unwrap_or_else(|| "the node".to_owned());
    if released == 0 {
        return Err(anyhow!("there is no hold on {what}"));
    }
    print(&format!("released {what}\n"));
    Ok(())
}

pub(super) fn holds(files: &Files, json: bool) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let all = HoldsFile::new(&load(files)?.state_dir).read()?;
    if json {
        show_json(&serde_json::to_value(all.in_force(now).collect::<Vec<_>>())?);
        return Ok(());
    }
    let lines: String = all.in_force(now).map(|hold| describe(hold) + "\n").collect();
    print(if lines.is_empty() { "no holds\n" } else { &lines });
    Ok(())
}

/// A hold on a name that no record can have would protect nothing.
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
