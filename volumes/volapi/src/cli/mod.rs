// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line.

mod serve;

mod import;

mod args;

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::Shutdown;
use daemon::agent::{self, ServeError, Target, Verbs};
use daemon::cli::pages::{count_lines, state_lines};
use daemon::cli::screen::visible;
use daemon::cli::table::plain;
use daemon::cli::{Screen, facts};
use serde_json::Value;

use self::args::Verb;
use crate::config::{Config, DEFAULT_FILE, Own};
use crate::service::Count;

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    agent::main::<Verb>(args)
}

impl Verbs for Verb {
    type Keys = Own;
    type Error = anyhow::Error;
    const ABOUT: &'static str = "Shared volumes: the service of RFD 26";
    const HELP: &'static str = args::HELP;
    const FILE: &'static str = DEFAULT_FILE;
    const STATUS: fn(&Value, Screen) -> String = status_lines;

    async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
        serve::serve(config, shutdown).await
    }

    async fn answer(self, target: Target<Self>, _screen: Screen) -> anyhow::Result<String> {
        match self {
            Self::Import { from } => import::import(&target.config()?, &from).await,
        }
    }
}

/// Returns the command about a volume that cannot be used, behind what is said of it.
fn command(one: &Value) -> String {
    one["command"].as_str().map(|command| format!(". {}", visible(command))).unwrap_or_default()
}

fn status_lines(page: &Value, screen: Screen) -> String {
    let mut lines = state_lines(page, screen);
    let states = page["volumes"].as_object().into_iter().flatten();
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
    let states = if page["volumes"].is_null() { "-".to_owned() } else { states.join(", ") };
    lines.push(("volumes", states));
    for one in page["degraded"].as_array().into_iter().flatten() {
        let text = |name: &str| plain(&one[name]);
        let why = one["why"].as_str().filter(|why| !why.is_empty());
        let why = why.map(|why| format!(": {}", visible(why))).unwrap_or_default();
        let (name, vm, since) = (text("name"), text("vm_uuid"), text("since"));
        let (state, command) = (text("storage_vm"), command(one));
        let what = format!("{name}: storage VM {vm} {state} since {since}{why}{command}");
        lines.push(("degraded", what));
    }
    for one in page["failed"].as_array().into_iter().flatten() {
        let why = one["why"].as_str().map_or("the reason is not known".to_owned(), visible);
        let (name, volume, command) = (plain(&one["name"]), plain(&one["volume"]), command(one));
        lines.push(("failed", format!("{name} ({volume}): {why}{command}")));
    }
    let far = page["out_of_reach"].as_u64().unwrap_or_default();
    if far > 0 {
        lines.push(("out of reach", format!("{far} storage VMs cannot be called from here")));
    }
    lines.push((
        "timers",
        if page["runs_timers"] == true { "here" } else { "elsewhere" }.to_owned(),
    ));
    lines.extend(count_lines(page, Count::ALL.iter().map(|count| count.metric().0), screen));
    facts(&lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // V87, V142
    fn the_status_names_each_degraded_and_each_failed_volume_and_why() {
        let page = json!({
            "waiting_for": [], "volumes": {"ready": 2}, "out_of_reach": 3, "runs_timers": true,
            "failed": [{"name": "old", "volume": "u", "why": "no\nroom", "command": "look"},
                {"name": "x", "volume": "w", "why": null}],
            "degraded": [{"name": "da\u{1b}ta", "vm_uuid": "v", "storage_vm": "does not serve",
                "since": "2026-01-01T00:00:00Z", "why": "no\nanswer", "command": "restart u"}],
        });
        let shown = status_lines(&page, Screen { is_terminal: false, colour: false });
        for line in [
            "da\\u001bta: storage VM v does not serve since 2026-01-01T00:00:00Z: no\\u000aanswer. restart u\n",
            "failed        old (u): no\\u000aroom. look\n",
            "failed        x (w): the reason is not known\n",
            "3 storage VMs cannot be called from here\n",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
    }
}
