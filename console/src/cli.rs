// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `console`, `console status`, completions and the manual page.
//!
//! A failure is one line on stderr and an exit status: 2 for the command line and the configuration
//! (96 under SMF), 1 for the rest.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use daemon::cli::{self, Generated, Layout, ListArgs, Screen, pages, span, valid_config};
use daemon::http::url_of;
use daemon::{ConfigError, Fields};

use crate::config::Config;
use crate::service::serve;

const NAME: &str = "console";
/// The platform image puts the configuration there.
const INSTALLED: &str = "/opt/smartdc/agents/etc/console.config.json";

const ABOUT: &str = "\
Examples:
  console serve                        the page at http://127.0.0.1:5310/
  console serve --config FILE
  console serve --check-config --config FILE
  console serve --fleet --config FILE  the page of the data centre
  console status                       is it up, and what does it show

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 96).";

/// Serves one web page that shows vminfod and its agents.
#[derive(Debug, Parser)]
#[command(name = "console", version = daemon::cli::version(), args_conflicts_with_subcommands = true, after_help = ABOUT)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the page.
    #[command(after_help = "\
Examples:
  console serve
  console serve --listen 127.0.0.1:8080
  console serve --check-config --config FILE    is the file valid?")]
    Serve(ServeArgs),
    /// Exit 0 if it answers.
    Ping {
        #[command(flatten)]
        reach: ReachArgs,
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it shows, and where (JSON if stdout is no terminal).
    #[command(after_help = "\
Examples:
  console status
  console status -p -o field,value
  console status | json agents")]
    Status {
        #[command(flatten)]
        reach: ReachArgs,
        #[command(flatten)]
        list: ListArgs,
    },
    #[command(flatten)]
    Generated(Generated),
}

#[derive(Debug, Default, Args)]
struct FileArgs {
    /// Configuration file, JSON or TOML (default: /opt/smartdc/agents/etc/console.config.json if it
    /// exists).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[cfg(not(feature = "fleet"))]
const WITHOUT_FLEET: &str = "the configuration has nats, for the page of the data centre: that is the program console-fleet, \
    of the package hub-tools";

#[derive(Debug, Default, Args)]
struct ReachArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Where the console serves (default: `listen` of the configuration).
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Default, Args)]
struct ServeArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Address to serve on, in place of the configured one.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The page of the data centre, from its feed, in place of the page of this node; so does a configuration with
    /// `nats`.
    #[cfg(feature = "fleet")]
    #[arg(long)]
    fleet: bool,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    cli::main(NAME, args, async |cli: Cli| {
        let print = |text: String| cli::print(NAME, &text);
        let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
            Command::Serve(args) => start(args).await,
            Command::Ping { reach, json } => ping(&reach, json).await.map(print),
            Command::Status { reach, list } => status(&reach, &list.layout()).await.map(print),
            Command::Generated(asked) => asked.text::<Cli>().map(print).map_err(Into::into),
        };
        cli::ended(NAME, done)
    })
}

async fn start(args: ServeArgs) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "fleet")]
    if args.fleet || find(&args.file)?.get("nats").is_some() {
        return of_fleet(args).await;
    }
    // A page of this node in the place of that of the data centre would be no page at all on a headnode.
    #[cfg(not(feature = "fleet"))]
    if find(&args.file)?.get("nats").is_some() {
        return Err(cli::Usage(WITHOUT_FLEET.to_owned()).into());
    }
    let (mut config, unknown) = load(&args.file)?;
    config.listen = args.listen.unwrap_or(config.listen);
    if args.check_config {
        return Ok(valid_config(NAME, &unknown));
    }
    let shutdown = cli::begin(NAME, &config.log_level, &unknown).context("signal handlers")?;
    let (_, tasks) = serve(config, shutdown).await?;
    if !tasks.ended().await {
        tracing::warn!("some tasks did not stop within their time");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "fleet")]
async fn of_fleet(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let (mut config, unknown) = crate::fleet::Config::read(find(&args.file)?)?;
    config.listen = args.listen.unwrap_or(config.listen);
    if args.check_config {
        return Ok(valid_config(NAME, &unknown));
    }
    let shutdown = cli::begin(NAME, &config.log_level, &unknown).context("signal handlers")?;
    let tasks = crate::fleet::serve(config, shutdown).await?;
    if !tasks.ended().await {
        tracing::warn!("some tasks did not stop within their time");
    }
    Ok(ExitCode::SUCCESS)
}

async fn ping(reach: &ReachArgs, json: bool) -> anyhow::Result<String> {
    Ok(pages::ping(NAME, &base(reach)?, json, Screen::of_stdout()).await?)
}

async fn status(reach: &ReachArgs, layout: &Layout) -> anyhow::Result<String> {
    let page = pages::page(NAME, &base(reach)?, "status", "version").await?;
    Ok(pages::shown(&page, layout, Screen::of_stdout(), |page, _| {
        let up = span(Duration::from_secs(page["up_s"].as_u64().unwrap_or_default()));
        pages::named_fields(
            page,
            &["vminfod", "agents", "feed", "nodes", "vms", "streams", "version", "pid"],
        ) + &format!("up       {up}\n")
    })?)
}

fn base(reach: &ReachArgs) -> Result<String, ConfigError> {
    match &reach.url {
        Some(url) => Ok(url.clone()),
        None => Ok(url_of(load(&reach.file)?.0.listen)),
    }
}

fn load(args: &FileArgs) -> Result<(Config, Vec<String>), ConfigError> {
    Config::read(find(args)?)
}

fn find(args: &FileArgs) -> Result<Fields, ConfigError> {
    Fields::find(args.config.as_deref(), None, INSTALLED)
}
