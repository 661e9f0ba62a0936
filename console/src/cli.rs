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

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use daemon::cli::{self, Shell, pages, valid_config};
use daemon::http::url_of;
use daemon::{ConfigError, Fields, exit};

use crate::config::Config;
use crate::service::serve;

const NAME: &str = "console";
/// The platform image puts the configuration there.
const INSTALLED: &str = "/etc/console.json";

const ABOUT: &str = "\
Examples:
  console                              the page at http://127.0.0.1:5310/
  console serve --config FILE
  console serve --check-config --config FILE
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
    /// Serve the page (the default).
    #[command(after_help = "\
Examples:
  console serve
  console serve --listen 127.0.0.1:8080
  console serve --check-config --config FILE    is the file valid?")]
    Serve(ServeArgs),
    /// Print the status of a running console as JSON.
    #[command(after_help = "\
Examples:
  console status
  console status | json agents")]
    Status(StatusArgs),
    /// Print completions for a shell.
    #[command(after_help = "\
Examples:
  console completions bash > /etc/bash_completion.d/console")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write all of them into a directory.
    #[command(after_help = "\
Examples:
  console man | man -l -
  console man /usr/share/man/man8")]
    Man {
        /// Where to write the pages of all commands.
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Default, Args)]
struct FileArgs {
    /// Configuration file, JSON or TOML (default: /etc/console.json if it exists).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
struct StatusArgs {
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
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    cli::run(NAME, async {
        let result = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
            Command::Serve(args) => start(args).await,
            Command::Status(args) => status(&args).await.map(|text| cli::print(NAME, &text)),
            Command::Completions { shell } => Ok(cli::print(NAME, &cli::completions::<Cli>(shell))),
            Command::Man { dir } => {
                let page = cli::man::<Cli>(dir.as_deref());
                page.map(|text| cli::print(NAME, &text)).map_err(Into::into)
            }
        };
        result.unwrap_or_else(|error| {
            let wrong_config = error.is::<ConfigError>();
            let code = if wrong_config { exit::config_code() } else { exit::FAILED };
            exit::report(NAME, error.as_ref(), code)
        })
    })
}

async fn start(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let (mut config, unknown) = load(&args.file)?;
    config.listen = args.listen.unwrap_or(config.listen);
    if args.check_config {
        return Ok(valid_config(NAME, &unknown));
    }
    let shutdown = cli::begin(NAME, &config.log_level, &unknown).context("signal handlers")?;
    if !serve(config, shutdown).await?.ended().await {
        tracing::warn!("some tasks did not end in time");
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(args: &StatusArgs) -> anyhow::Result<String> {
    let base = match &args.url {
        Some(url) => url.clone(),
        None => url_of(load(&args.file)?.0.listen),
    };
    Ok(format!("{:#}\n", pages::page(NAME, &base, "status").await?))
}

fn load(args: &FileArgs) -> Result<(Config, Vec<String>), ConfigError> {
    Config::read(Fields::find(args.config.as_deref(), None, INSTALLED)?)
}
