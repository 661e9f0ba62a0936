// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: what can be said to the program, and which module answers. Exit codes: 0
//! done, 1 failed, 2 wrong use or configuration; under SMF `serve` ends with 96 for a
//! configuration that cannot work and 95 when another copy runs, so that nobody restarts it.

mod holds;
mod serve;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use daemon::exit;
use serde_json::Value;

use crate::config::{Config, DEFAULT_FILE};

const EXAMPLES: &str = "\
Examples:
  net-agent plan                                what would be done, and why
  net-agent nic 90:b8:d0:12:34:56               everything known of one NIC
  net-agent hold --vm UUID --for 2h --reason 'migration'
  net-agent release --vm UUID
  net-agent reap --dry-run                      a rehearsal, with or without the daemon
  net-agent approve 9f3c52a1b6d07e48            let go what the brake keeps, as listed by plan
  net-agent status | json waiting_for           what is waited for

Exit codes: 0 done, 1 failed, 2 wrong use or configuration.";

#[derive(Parser, Debug)]
#[command(name = "net-agent", version, about = "Keeps NAPI's NIC records in step with the node")]
#[command(after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    files: Files,
}

#[derive(Args, Debug, Clone)]
struct Files {
    /// The agent's file, as config-agent writes it.
    #[arg(long, global = true, default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// Our own keys, when they are kept in a file of their own.
    #[arg(long, global = true)]
    policy: Option<PathBuf>,
    /// Read the configuration, say what is wrong with it, and end.
    #[arg(long, global = true)]
    check_config: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run the daemon (the default).
    Serve,
    /// What the daemon has done and what it waits for, as JSON.
    Status {
        /// As JSON (it always is).
        #[arg(short, long)]
        json: bool,
    },
    /// What it would do about each NIC, and the evidence.
    Plan(PlanArgs),
    /// RFD 58's name for the plan; from here it only ever runs dry.
    Reap {
        /// Only say what would be reaped.
        #[arg(long, required = true)]
        dry_run: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Leave a VM's NICs (or the whole node's) alone.
    Hold {
        /// The VM; without it, the whole node.
        #[arg(long)]
        vm: Option<String>,
        /// For how long (2h, 30m); without it, until released.
        #[arg(long = "for")]
        length: Option<String>,
        /// Why; shown wherever the hold is.
        #[arg(long)]
        reason: String,
    },
    /// Take a hold away.
    Release {
        /// The VM; without it, the hold on the whole node.
        #[arg(long)]
        vm: Option<String>,
    },
    /// The holds in force.
    Holds {
        /// As JSON.
        #[arg(short, long)]
        json: bool,
    },
    /// Let go what the brake keeps, as `plan` listed it within the last 15 minutes.
    Approve {
        /// The id that `plan` printed.
        id: String,
    },
    /// What NAPI, the node and VMAPI say of one NIC, and what follows.
    Nic {
        /// Its address, in any spelling.
        mac: String,
        /// As JSON.
        #[arg(short, long)]
        json: bool,
    },
    /// Print completions for a shell.
    Completions {
        /// bash, zsh, fish, …
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
}

#[derive(Args, Debug)]
struct PlanArgs {
    /// As JSON.
    #[arg(short, long)]
    json: bool,
    /// Records that are kept as they are, too.
    #[arg(long)]
    all: bool,
    /// Only this NIC.
    #[arg(long)]
    mac: Option<String>,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) if !err.use_stderr() => {
            print(&err.to_string());
            return ExitCode::SUCCESS;
        }
        Err(err) => {
            let text = err.to_string();
            // clap's first paragraph says what is wrong; the rest is the usage.
            let lines: Vec<_> =
                text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let wrong = lines.join(" ");
            eprintln!("net-agent: {} (see --help)", wrong.trim_start_matches("error: "));
            return ExitCode::from(exit::USAGE);
        }
    };
    if cli.files.check_config {
        return check(&cli.files);
    }
    let verb = cli.verb.unwrap_or(Verb::Serve);
    let done = match verb {
        Verb::Serve => return serve::serve(&cli.files),
        Verb::Status { .. } => show::status(&cli.files),
        Verb::Plan(args) => show::plan(&cli.files, &args),
        Verb::Reap { plan, .. } => show::rehearse(&cli.files, &plan),
        Verb::Approve { id } => show::approve(&cli.files, &id),
        Verb::Nic { mac, json } => show::nic(&cli.files, &mac, json),
        Verb::Hold { vm, length, reason } => holds::hold(&cli.files, vm, length.as_deref(), reason),
        Verb::Release { vm } => holds::release(&cli.files, vm),
        Verb::Holds { json } => holds::holds(&cli.files, json),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "net-agent", &mut text);
            print(&String::from_utf8_lossy(&text));
            Ok(())
        }
        Verb::Man => man(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let chain = daemon::log::chain(&*err);
            let one_line = chain.split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("net-agent: {one_line}");
            let usage = err.is::<daemon::ConfigError>() || err.is::<Usage>();
            ExitCode::from(if usage { exit::USAGE } else { exit::FAILED })
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// A reader that went away (`| head`) is no reason to panic.
fn print(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _reader_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn man() -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut text).context("the manual page")?;
    print(&String::from_utf8_lossy(&text));
    Ok(())
}

fn check(files: &Files) -> ExitCode {
    match Config::load(&files.config, files.policy.as_deref()) {
        Ok(config) => {
            for key in &config.unknown {
                eprintln!("net-agent: warning: {key}: unknown key");
            }
            print("configuration ok\n");
            ExitCode::SUCCESS
        }
        Err(err) => exit::report("net-agent", &err, exit::USAGE),
    }
}

fn load(files: &Files) -> anyhow::Result<Config> {
    Ok(Config::load(&files.config, files.policy.as_deref())?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn show_json(page: &Value) {
    print(&format!("{page:#}\n"));
}
