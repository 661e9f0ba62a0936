// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `serve` (the default) and the small clients `ping status vms vm events`.
//!
//! Whatever goes wrong is one line on stderr and a status: 2 for the command line and the
//! configuration (96 under SMF), 1 for the rest.

mod clients;
mod serve;
pub mod stream;
pub mod supply;
pub mod vmadm;
pub mod vminfo;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use daemon::exit;

/// The name in messages and logs.
const NAME: &str = "vminfod";

/// The node's single consumer of sysevents and cache of VM objects.
#[derive(Debug, Parser)]
#[command(name = "vminfod", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon (the default).
    Serve(ServeArgs),
    /// Ask whether it is up.
    Ping(Url),
    /// Print its status.
    Status {
        #[command(flatten)]
        url: Url,
        /// With the refresh log and the watched files.
        #[arg(short, long)]
        full: bool,
    },
    /// Print all VM objects.
    Vms {
        #[command(flatten)]
        url: Url,
        /// Read the node afresh first.
        #[arg(long)]
        sync: bool,
    },
    /// Print one VM object.
    Vm {
        /// Its zone name, which is its uuid in practice.
        name: String,
        #[command(flatten)]
        url: Url,
        /// Read the VM afresh first.
        #[arg(long)]
        sync: bool,
    },
    /// Print events as they come.
    Events(Url),
}

#[derive(Debug, Default, Args)]
struct ServeArgs {
    /// Configuration file, JSON or TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory to take as the node's root.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Address to serve on.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
}

#[derive(Debug, Args)]
struct Url {
    /// Where vminfod serves.
    #[arg(long, default_value = "http://127.0.0.1:9090")]
    url: String,
}

/// Runs the program.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.to_string();
            let line = text
                .lines()
                .next()
                .unwrap_or("wrong usage")
                .trim_start_matches("error: ")
                .to_owned();
            eprintln!("{NAME}: {line} (see --help)");
            return ExitCode::from(exit::USAGE);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(NAME, &error, exit::FAILED),
    };
    let code = match cli.command {
        None => runtime.block_on(serve::run(cli.serve)),
        Some(Command::Serve(args)) => runtime.block_on(serve::run(args)),
        Some(command) => runtime.block_on(clients::run(command)),
    };
    // A file system that does not answer must not hold the end of the program up.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    code
}
