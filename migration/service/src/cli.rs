// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `migration-service`, `migration-service status`, `import`, completions and the manual page.
//!
//! A failure is one line on stderr and an exit status: 2 for the command line and the configuration
//! (96 under SMF), 1 for the rest.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use daemon::cli::{self, Generated, pages, valid_config};
use daemon::http::url_of;
use daemon::{ConfigError, Fields};
use sdc_clients::http::Http;

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
  migration-service status                       is it up, and what runs
  migration-service import --dry-run http://vmapi.example.com

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 96).";

/// Migrates VMs to other compute nodes, in front of VMAPI (RFD 34).
#[derive(Debug, Parser)]
#[command(name = "migration-service", version = daemon::cli::version(), after_help = ABOUT)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM.
    #[command(after_help = "\
Examples:
  migration-service serve
  migration-service serve --check-config --config FILE    is the file valid?")]
    Serve(ServeArgs),
    /// Print the status of a running service as JSON.
    #[command(after_help = "\
Examples:
  migration-service status
  migration-service status | json alarms")]
    Status(StatusArgs),
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

#[derive(Debug, Default, Args)]
struct FileArgs {
    /// Configuration file, JSON or TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
struct ServeArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
}

#[derive(Debug, Default, Args)]
struct StatusArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Where its pages are (default: `status.listen` of the configuration).
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Args)]
struct ImportArgs {
    #[command(flatten)]
    file: FileArgs,
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
    cli::run(NAME, async {
        let print = |text: String| cli::print(NAME, &text);
        let done = match cli.command {
            Command::Serve(args) => start(args).await,
            Command::Status(args) => status(&args).await.map(print),
            Command::Import(args) => take_over(&args).await.map(print),
            Command::Generated(asked) => asked.text::<Cli>().map(print).map_err(Into::into),
        };
        cli::ended(NAME, done)
    })
}

async fn start(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let (config, unknown) = load(&args.file)?;
    if args.check_config {
        return Ok(valid_config(NAME, &unknown));
    }
    let shutdown = cli::begin(NAME, &config.log_level, &unknown).context("signal handlers")?;
    if !serve(config, shutdown).await?.ended().await {
        tracing::warn!("some tasks did not stop within their time");
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(args: &StatusArgs) -> anyhow::Result<String> {
    let base = match &args.url {
        Some(url) => url.clone(),
        None => url_of(load(&args.file)?.0.status_listen),
    };
    Ok(format!("{:#}\n", pages::page(NAME, &base, "status", "version").await?))
}

async fn take_over(args: &ImportArgs) -> anyhow::Result<String> {
    let (config, _) = load(&args.file)?;
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

fn load(args: &FileArgs) -> Result<(Config, Vec<String>), ConfigError> {
    Config::read(Fields::find(args.config.as_deref(), None, INSTALLED)?)
}
