// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `serve`, `ping`, `status`, `import`, completions and the manual page.
//!
//! A failure is one line on stderr and an exit status: 2 for the command line and the configuration
//! (96 under SMF), 1 for the rest.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use daemon::cli::hosts::Hosts;
use daemon::cli::names::Names;
use daemon::cli::screen::visible;
use daemon::cli::{self, Generated, NamedListArgs, Screen, Tone, facts, pages, valid_config};
use daemon::http::url_of;
use daemon::{ConfigError, Fields, Shutdown};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::Http;
use sdc_clients::restify::is_uuid;
use sdc_clients::vmapi::Vmapi;
use serde_json::Value;
use tokio::time::timeout;

use super::config::Config;
use super::import::{Mode, Taken, import};
use super::records::Records;
use super::serve::{open, serve};

const NAME: &str = "migration-service";
/// Where the package puts the configuration.
const INSTALLED: &str = "/opt/smartdc/migration-service/etc/config.json";

const ABOUT: &str = "\
Examples:
  migration-service serve --config FILE
  migration-service serve --check-config --config FILE
  migration-service status                       what runs, and what needs a person
  migration-service import --dry-run http://vmapi.example.com

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 96).";

/// Migrates VMs to other compute nodes, in front of VMAPI (RFD 34).
#[derive(Debug, Parser)]
#[command(name = "migration-service", version = daemon::cli::version(), after_help = ABOUT)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    reach: Reach,
}

/// Where its configuration and its pages are.
#[derive(Clone, Debug, Default, Args)]
struct Reach {
    /// Configuration file, JSON or TOML (default: /opt/smartdc/migration-service/etc/config.json).
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where its pages are (default: `status.listen` of the configuration).
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM.
    #[command(after_help = "\
Examples:
  migration-service serve
  migration-service serve --check-config --config FILE    is the file valid?")]
    Serve {
        /// Check the configuration and end.
        #[arg(long)]
        check_config: bool,
    },
    /// Exit 0 if the service answers.
    #[command(after_help = "\
Examples:
  migration-service ping
  until migration-service ping >/dev/null 2>&1; do sleep 1; done")]
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it does, and what a person has to do something about (JSON if stdout is no terminal).
    #[command(after_help = "\
Examples:
  migration-service status
  migration-service status | json alarms
  migration-service status -p -o field,value")]
    Status {
        #[command(flatten)]
        list: NamedListArgs,
    },
    /// Take the records over from a running VMAPI, and print what differs.
    #[command(after_help = "\
Examples:
  migration-service import --dry-run http://vmapi.example.com
  migration-service import http://vmapi.example.com
  migration-service import --force http://vmapi.example.com    running migrations too

The service must not run where the store is a file. It can be repeated: what is there stays. A running
migration is left out and named: two services that work on it could boot both copies of its VM.")]
    Import(ImportArgs),
    #[command(flatten)]
    Generated(Generated),
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// Change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also take running migrations over: the VMAPI that has them must have been stopped before its jobs ended.
    #[arg(long)]
    force: bool,
    /// The VMAPI that has the records.
    #[arg(value_name = "URL")]
    from: String,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let (reach, screen) = (&cli.reach, Screen::of_stdout());
    cli::run(NAME, async {
        let print = |text: String| cli::print(NAME, &text);
        let done = match cli.command {
            Command::Serve { check_config } => start(reach, check_config).await,
            Command::Ping { json } => ping(reach, json, screen).await.map(print),
            Command::Status { list } => status(reach, &list, screen).await.map(print),
            Command::Import(args) => take_over(reach, &args).await.map(print),
            Command::Generated(asked) => asked.text::<Cli>().map(print).map_err(Into::into),
        };
        cli::ended(NAME, done)
    })
}

async fn start(reach: &Reach, check_config: bool) -> anyhow::Result<ExitCode> {
    if check_config {
        return Ok(valid_config(NAME, &load(reach)?.1));
    }
    // What SAPI does not have yet is waited for: SMF would start the service again and again.
    let (waiting, reach) = (Shutdown::new(), reach.clone());
    waiting.on_signals().context("signal handlers")?;
    let late = cli::late_config(NAME, move || load(&reach), &waiting).await?;
    let Some((config, unknown)) = late else { return Ok(ExitCode::SUCCESS) };
    let shutdown = cli::begin(NAME, &config.log_level, &unknown).context("signal handlers")?;
    if !serve(config, shutdown).await?.ended().await {
        tracing::warn!("some tasks did not stop in time; exiting without them");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the base URL of its pages. With `--url` no configuration is read.
fn base(reach: &Reach) -> Result<String, ConfigError> {
    match &reach.url {
        Some(url) => Ok(url.clone()),
        None => Ok(url_of(load(reach)?.0.status_listen)),
    }
}

async fn ping(reach: &Reach, json: bool, screen: Screen) -> anyhow::Result<String> {
    Ok(pages::ping(NAME, &base(reach)?, json, screen).await?)
}

async fn status(reach: &Reach, list: &NamedListArgs, screen: Screen) -> anyhow::Result<String> {
    let mut page = pages::page(NAME, &base(reach)?, "status", "version").await?;
    // With --url there need not be a configuration, and then there are no names.
    if let (true, Ok((config, _))) = (list.shows_names(screen), load(reach)) {
        page = names(&config, &page).await.in_page(page);
    }
    Ok(pages::shown(&page, &list.layout(), screen, status_lines)?)
}

/// Returns the aliases of the VMs of a status, and the host names; none where VMAPI or CNAPI does not answer.
async fn names(config: &Config, page: &Value) -> Names {
    let rows = ["migrations", "replaced"].into_iter().filter_map(|name| page[name].as_array());
    let of_rows = rows.flatten().filter_map(|it| it["vm_uuid"].as_str());
    // An alarm begins with its VM.
    let alarms = page["alarms"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let of_alarms = alarms.filter_map(|it| it.split(':').next()).filter(|it| is_uuid(it));
    let vms = of_rows.chain(of_alarms).map(str::to_owned).collect();
    let http = |url: &str| {
        let http = Http::new(url, &format!("{NAME}-cli"))?.without_retries();
        Ok::<Http, sdc_clients::Error>(http)
    };
    let asked = async {
        let (vmapi, cnapi) = (http(&config.addresses.vmapi)?, http(&config.addresses.cnapi)?);
        let (vmapi, cnapi) = (Vmapi::new(vmapi), Cnapi::new(cnapi));
        let hosts = Hosts::read(&cnapi).await.unwrap_or_default();
        Ok::<Names, sdc_clients::Error>(Names::of_vmapi(&vmapi, vms).await.and(hosts))
    };
    match timeout(pages::PATIENCE, asked).await {
        Ok(Ok(names)) => names,
        _ => Names::default(),
    }
}

/// Returns `/status` for people: what needs them first.
fn status_lines(page: &Value, screen: Screen) -> String {
    let list = |name: &str| page[name].as_array().cloned().unwrap_or_default();
    let (mut lines, mut counts) = (Vec::new(), BTreeMap::<String, usize>::new());
    for alarm in list("alarms") {
        let alarm = visible(alarm.as_str().unwrap_or_default());
        lines.push(("needs you", screen.paint(Tone::Bad, &alarm)));
    }
    for one in list("migrations") {
        let (state, vm) = (pages::text(&one, "state"), pages::text(&one, "vm_uuid"));
        if state == "running" {
            let waits = one["waits_for"].as_str().map(|why| format!(": {}", visible(why)));
            lines.push((
                "running",
                format!("{vm} {}{}", pages::text(&one, "phase"), waits.unwrap_or_default()),
            ));
        }
        *counts.entry(state).or_default() += 1;
    }
    let counts = counts.iter().map(|(state, count)| format!("{count} {state}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let none = if page["migrations"].is_null() { "-" } else { "none" };
    lines.push(("migrations", if counts.is_empty() { none.to_owned() } else { counts }));
    for one in list("revoked") {
        lines.push(("revoked", visible(one.as_str().unwrap_or_default())));
    }
    let seen = page["rounds_seen"].as_str().map_or("-".to_owned(), pages::to_the_second);
    lines.push(("rounds", format!("last done {seen}")));
    lines.push(("address", pages::text(page, "url")));
    facts(&lines)
}

async fn take_over(reach: &Reach, args: &ImportArgs) -> anyhow::Result<String> {
    let (config, _) = load(reach)?;
    let store = open(&config.storage).await?;
    let records = Records::open(&store).await?;
    let from = Http::new(&args.from, concat!("migration-service/", env!("CARGO_PKG_VERSION")))?;
    let mode = Mode { is_dry: args.dry_run, with_running: args.force };
    let taken = import(&records, &from, config.operators, mode).await;
    let taken = taken.map_err(|refused| anyhow::anyhow!("{}", refused.message()))?;
    let is_left = |became: &Taken| matches!(became, Taken::Refused(_) | Taken::Runs);
    let is_whole = !taken.iter().any(|(_, became)| is_left(became));
    let lines = taken.into_iter().map(|(vm, became)| match became {
        Taken::New if args.dry_run => format!("{vm} would be taken over\n"),
        Taken::New => format!("{vm} taken over\n"),
        Taken::Same => format!("{vm} is here already\n"),
        Taken::Differs(fields) => format!("{vm} differs in {}\n", fields.join(", ")),
        Taken::Runs => format!(
            "{vm} was not taken over: its migration runs; import again once it has ended, or with --force\n"
        ),
        Taken::Refused(why) => format!("{vm} was not taken over: {why}\n"),
    });
    let text: String = lines.collect();
    anyhow::ensure!(is_whole, "{}", text.trim_end());
    Ok(text)
}

fn load(reach: &Reach) -> Result<(Config, Vec<String>), ConfigError> {
    Config::read(Fields::find(reach.config.as_deref(), None, INSTALLED)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // M143
    fn the_status_says_first_what_needs_a_person() {
        let page = json!({"alarms": ["V: it \u{1b}failed"], "rounds_seen": "2026-03-01T00:00:00.123Z", "url": "http://m",
            "migrations": [{"state": "running", "phase": "sync", "vm_uuid": "V", "waits_for": "a node"},
                {"state": "paused"}, {"state": "running", "phase": "begin", "vm_uuid": "W"}],
            "revoked": ["N on a day"]});
        let shown = status_lines(&page, Screen { is_terminal: true, colour: false });
        let want = [
            "V: it \\u001bfailed",
            "V sync: a node",
            "W begin",
            "1 paused, 2 running",
            "N on a day",
            "last done 2026-03-01T00:00:00Z",
            "http://m",
        ];
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), want.len(), "{shown}");
        for (line, want) in lines.iter().zip(want) {
            assert!(line.ends_with(want), "{shown}");
        }
    }
}
