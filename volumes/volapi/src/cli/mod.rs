// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line. A failure is one line on stderr and an exit status: 2 for the command line and the
//! configuration (96 under SMF), 1 for the rest (95 under SMF if another copy runs).

mod serve;

mod import;

mod args;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::agent;
use daemon::cli::pages::{self, count_lines, state_lines};
use daemon::cli::screen::visible;
use daemon::cli::table::plain;
use daemon::cli::{self, Screen, facts};
use serde_json::Value;

use self::args::{Cli, NAME, Verb};
use crate::config::Config;
use crate::service::Count;

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let (files, screen) = (&cli.files, Screen::of_stdout());
    if files.check_config {
        return agent::check(NAME, files, Config::read);
    }
    match cli.verb.unwrap_or(Verb::Serve) {
        Verb::Serve => agent::serve(NAME, files, Config::read, serve::serve),
        verb => cli::run(NAME, async {
            let done = async {
                let base = || files.base(Config::read);
                Ok::<_, anyhow::Error>(match verb {
                    Verb::Serve => String::new(),
                    Verb::Ping { json } => pages::ping(NAME, &base()?, json, screen).await?,
                    Verb::Status { list } => {
                        let page = pages::page(NAME, &base()?, "status", "version").await?;
                        pages::shown(&page, &list.layout(), screen, status_lines)?
                    }
                    Verb::Import { from } => {
                        import::import(&files.load(Config::read)?, &from).await?
                    }
                    Verb::Generated(asked) => asked.text::<Cli>().context("the manual pages")?,
                })
            };
            cli::finish(NAME, done.await)
        }),
    }
}

/// Returns `/status` for people: one fact per line.
fn status_lines(page: &Value, screen: Screen) -> String {
    let mut lines = state_lines(page, screen);
    let states = page["volumes"].as_object().into_iter().flatten();
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
    lines.push(("volumes", states.join(", ")));
    for one in page["degraded"].as_array().into_iter().flatten() {
        let text = |name: &str| plain(&one[name]);
        let why = one["why"].as_str().filter(|why| !why.is_empty());
        let why = why.map(|why| format!(": {}", visible(why))).unwrap_or_default();
        let (name, vm, since) = (text("name"), text("vm_uuid"), text("since"));
        let state = text("storage_vm");
        lines.push(("degraded", format!("{name}: storage VM {vm} {state} since {since}{why}")));
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

    #[test] // V87
    fn the_status_names_each_degraded_volume_and_why() {
        let page = json!({
            "waiting_for": [], "volumes": {"ready": 2}, "out_of_reach": 3, "runs_timers": true,
            "degraded": [{"name": "da\u{1b}ta", "vm_uuid": "v", "storage_vm": "does not serve",
                "since": "2026-01-01T00:00:00Z", "why": "no\nanswer"}],
        });
        let shown = status_lines(&page, Screen { is_terminal: false, colour: false });
        for line in [
            "da\\u001bta: storage VM v does not serve since 2026-01-01T00:00:00Z: no\\u000aanswer\n",
            "3 storage VMs cannot be called from here\n",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
    }
}
