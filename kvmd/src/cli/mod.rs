// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `start` (and `serve`, the same without forgiveness for a second one), the
//! small clients `ping status watch`, and `clear`, the admin tools' half of the marker's contract.
//!
//! Whatever goes wrong is one line on stderr and a status: 2 for the command line and the
//! configuration (96 under SMF), 1 for the rest.

mod clients;
mod start;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use daemon::exit;

use crate::verdict::Rule;

/// The name in messages and logs.
const NAME: &str = "kvmd";

const EXAMPLES: &str = "\
Examples:
  kvmd start                         run, unless it runs already or is not needed
  kvmd start --background            the same, and return when it serves
  kvmd serve --config /etc/kvmd.toml
  kvmd status                        who is watched, and who was turned off by whom
  kvmd status -j | json verdicts
  kvmd watch                         verdicts as they come
  kvmd clear web01                   before an instance is started or stopped by an admin tool
  kvmd completions bash > /etc/bash_completion.d/kvmd";

/// Tells who turned a VM off.
#[derive(Debug, Parser)]
#[command(name = "kvmd", version, after_help = EXAMPLES, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon; running already or not being needed is a success.
    #[command(
        after_help = "Examples:\n  kvmd start\n  kvmd start --background --log /var/log/kvmd.log"
    )]
    Start {
        #[command(flatten)]
        serve: ServeArgs,
        /// Return when it serves; it goes on alone.
        #[arg(long)]
        background: bool,
        /// With --background: append its log there.
        #[arg(long, value_name = "FILE", requires = "background")]
        log: Option<PathBuf>,
    },
    /// Run the daemon; a second one is an error.
    #[command(after_help = "Examples:\n  kvmd serve\n  kvmd serve --config FILE --check-config")]
    Serve(ServeArgs),
    /// Ask whether it is up.
    #[command(after_help = "Example:\n  kvmd ping && echo it runs")]
    Ping(Ask),
    /// Print what is watched and the last verdicts.
    #[command(after_help = "Examples:\n  kvmd status\n  kvmd status -j")]
    Status(Ask),
    /// Print verdicts as they come, whatever happens to the daemon.
    #[command(
        after_help = "Examples:\n  kvmd watch\n  kvmd watch -j | json -ga name initiator kind"
    )]
    Watch(Ask),
    /// Remove an instance's marker, as admin tools must at start, stop, cleanup and the end of a
    /// migration; the daemon learns of it even when it is just writing one.
    #[command(after_help = "Example:\n  kvmd clear web01")]
    Clear {
        /// The instance: its socket's name without the extension.
        name: String,
        #[command(flatten)]
        file: ConfigFile,
        /// The control directory, in place of the configured one.
        #[arg(long, value_name = "DIR")]
        control: Option<PathBuf>,
        /// The run directory, in place of the configured one.
        #[arg(long, value_name = "DIR")]
        run_dir: Option<PathBuf>,
    },
    /// Print a shell's completions.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Print the manual page.
    Man,
}

#[derive(Debug, Default, Args)]
struct ConfigFile {
    /// Configuration file, JSON or TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
struct ServeArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Run although the configuration does not say `enabled`.
    #[arg(long)]
    enable: bool,
    /// Address to serve on.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Whose rule writes markers: reason (ours) or ganeti (as shipped).
    #[arg(long, value_name = "RULE")]
    rule: Option<Rule>,
    /// The directory of the monitors' sockets.
    #[arg(long, value_name = "DIR")]
    control: Option<PathBuf>,
    /// Directory for the lock and what must survive a restart.
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Directory to take as the node's root, for zones' paths.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
}

#[derive(Debug, Args)]
struct Ask {
    /// Where kvmd serves.
    #[arg(long, default_value = "http://127.0.0.1:5312")]
    url: String,
    /// JSON, as the daemon sends it.
    #[arg(short, long)]
    json: bool,
}

/// Runs the program.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    let command = match cli.command {
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), NAME, &mut std::io::stdout());
            return ExitCode::SUCCESS;
        }
        Command::Man => {
            let page = clap_mangen::Man::new(Cli::command());
            return match page.render(&mut std::io::stdout()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => exit::report(NAME, &error, exit::FAILED),
            };
        }
        Command::Clear { name, file, control, run_dir } => {
            return start::clear(&name, &file, control, run_dir);
        }
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(NAME, &error, exit::FAILED),
    };
    let code = match command {
        Command::Start { serve, background: true, log } => {
            runtime.block_on(start::background(&args, serve, log))
        }
        Command::Start { serve, .. } => runtime.block_on(start::run(serve, true)),
        Command::Serve(serve) => runtime.block_on(start::run(serve, false)),
        command => runtime.block_on(clients::run(command)),
    };
    // A file system that does not answer must not hold the end of the program up.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    code
}

fn wrong_usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or("wrong usage").trim_start_matches("error: ");
    eprintln!("{NAME}: {line} (see --help)");
    ExitCode::from(exit::USAGE)
}
