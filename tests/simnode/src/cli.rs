// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands `cn` (nodes) and `vm` (VMs, as `vmadm` changes them) of `simnode` and `testbed`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::create::CreateOptions;
use crate::error::NodeError;
use crate::getopt::Said;
use crate::node::Node;
use crate::show::{self, VmVerb};
use crate::verbs::Verbs;
use crate::wait::Wait;

#[derive(Parser)]
#[command(about = "A simulated compute node", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    group: Group,
}

#[derive(Subcommand)]
enum Group {
    /// Compute nodes
    #[command(subcommand)]
    Cn(Cn),
    /// VMs of a node, as vmadm does it
    Vm(Vm),
}

#[derive(Subcommand)]
enum Cn {
    /// Make a node with generated VMs
    Create {
        /// Directory to make
        dir: PathBuf,
        /// How many VMs
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(..=20_000))]
        vms: u32,
        /// Decides everything random
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// UUID of the node
        #[arg(long)]
        cn_uuid: Option<String>,
        /// Where the node's vminfod listens
        #[arg(long, value_name = "URL")]
        vminfod: Option<String>,
        /// How long a zone stays in each state on its way, in milliseconds
        #[arg(long, default_value_t = 0, value_name = "MS")]
        pace: u64,
    },
    /// Print what a node is and has
    Show {
        /// The node's directory
        dir: PathBuf,
    },
}

#[derive(Args)]
struct Vm {
    /// The node's directory
    #[arg(long, value_name = "DIR")]
    cn: PathBuf,
    /// Wait until vminfod shows the effect
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, global = true, value_name = "true|false")]
    wait: bool,
    /// Announce nothing, as if every sysevent were lost
    #[arg(long, global = true)]
    lose_events: bool,
    #[command(subcommand)]
    verb: VmVerb,
}

/// Runs `cn …` or `vm …`; `program` is the name for usage and errors.
pub fn run(program: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
    let all = std::iter::once(OsString::from(program)).chain(args);
    let cli = match Cli::try_parse_from(all) {
        Ok(cli) => cli,
        Err(error) => {
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            let text = error.to_string();
            let text = text.trim_start_matches("error: ");
            let what: Vec<&str> = text
                .lines()
                .take_while(|l| !l.starts_with("Usage:"))
                .map(str::trim)
                .filter(|l| !l.is_empty())
                .collect();
            let _ = writeln!(std::io::stderr(), "{program}: {}", what.join(" "));
            return ExitCode::from(2);
        }
    };
    let done = match cli.group {
        Group::Cn(cn) => cn_verb(cn).map(|text| Ok(text).into()),
        Group::Vm(vm) => vm_verb(vm),
    };
    match done {
        Ok(said) => {
            let mut out = std::io::stdout().lock();
            if !said.stderr.is_empty() {
                let _ = writeln!(std::io::stderr(), "{}", said.stderr);
            }
            match out.write_all(said.stdout.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => ExitCode::from(said.status),
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{program}: {error}");
            ExitCode::from(if matches!(error, NodeError::Invalid { .. }) { 2 } else { 1 })
        }
    }
}

fn cn_verb(cn: Cn) -> Result<String, NodeError> {
    match cn {
        Cn::Create { dir, vms, seed, cn_uuid, vminfod, pace } => {
            if let Some(url) = &vminfod {
                Wait::at(url)?;
            }
            let options = CreateOptions {
                vms,
                seed,
                cn_uuid,
                vminfod_url: vminfod,
                pace_ms: pace,
                ..CreateOptions::new(dir)
            };
            let node = Node::create(&options)?;
            Ok(format!("{}: node {} with {} VMs\n", node.dir().display(), node.cn_uuid(), vms))
        }
        Cn::Show { dir } => show::node(&Node::open(dir)?),
    }
}

fn vm_verb(vm: Vm) -> Result<Said, NodeError> {
    let node = Node::open(vm.cn)?;
    let wait = if vm.wait { Wait::of(&node)? } else { Wait::none() };
    let node = if vm.lose_events { node.losing_events() } else { node };
    // Nearly all that vmadm changes asks zfs: the mounts of a boot, a quota, a delegated dataset.
    node.wait_for_zfs();
    let verbs = Verbs::new(&node, wait);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| NodeError::io("start a runtime for", node.dir(), e))?;
    runtime.block_on(vm.verb.run(&verbs))
}
