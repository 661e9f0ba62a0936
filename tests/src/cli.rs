// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The testbed's one binary: its own commands, and the programs it becomes when it is started
//! under another name (`zoneadm`, `zfs`, `sysevent`, `kstat`) or with a hidden first argument
//! (`@vminfod`, `@net-agent`), so that one build brings everything a simulated node needs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{conform, lab, napi, node, process, vmapi};

const USAGE: &str = "\
usage: testbed COMMAND [ARGS]

  lab       a simulated node, vminfod, net-agent and a mock NAPI, and a story on them
  cn        create and look at simulated compute nodes
  vm        do to a VM of a simulated node what vmadm does
  napi      a mock NAPI
  vmapi     a mock VMAPI
  conform   compare this implementation with recorded behaviour
  storm     thousands of mutations with listeners coming and going
  sim       the whole system under a seeded world, invariants checked after every step
  fleet     ten thousand agents against one NAPI, on a virtual clock
  soak      churn for minutes, and what grows
  fuzz      run every parser over generated input for a while
  bench     measure against limits taken in the same run

`testbed COMMAND --help` tells more.
";

/// The node's own programs, by the name they are started under.
const TOOLS: [&str; 4] = ["zoneadm", "zfs", "sysevent", "kstat"];

/// Runs the program; `args` begin with the name it was started under.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut args = args;
    let invoked = PathBuf::from(args.next().unwrap_or_default());
    let rest: Vec<OsString> = args.collect();
    if let Some((tool, node)) = as_tool(&invoked) {
        process::die_with_parent();
        return node::exec::run(tool, &node, rest);
    }
    let Some((command, rest)) = rest.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(daemon::exit::USAGE);
    };
    let rest = rest.to_vec();
    match command.to_str().unwrap_or_default() {
        "@vminfod" => {
            process::die_with_parent();
            vminfod::cli::run(std::iter::once("vminfod".into()).chain(rest))
        }
        // The same program by its other names.
        name @ ("@vminfo" | "@vmadm") => {
            process::die_with_parent();
            let name = OsString::from(name.trim_start_matches('@'));
            vminfod::cli::run(std::iter::once(name).chain(rest))
        }
        "@net-agent" => {
            process::die_with_parent();
            net_agent::cli::run(std::iter::once("net-agent".into()).chain(rest))
        }
        "@kvmd" => {
            process::die_with_parent();
            kvmd::cli::run(std::iter::once("kvmd".into()).chain(rest))
        }
        "@console" => {
            process::die_with_parent();
            console::cli::run(std::iter::once("console".into()).chain(rest))
        }
        "lab" => lab::cli::run(rest),
        "cn" | "vm" => node::cli::run(std::iter::once(command.clone()).chain(rest).collect()),
        "napi" => napi::cli::run(rest),
        "vmapi" => vmapi::cli::run(rest),
        "conform" => conform::run(&rest),
        "storm" => crate::storm::run(&rest),
        "sim" => crate::sim::run(&rest),
        "fleet" => crate::fleet::run(&rest),
        "soak" => crate::soak::run(&rest),
        "fuzz" => crate::fuzz::run(&rest),
        "bench" => crate::bench::run(&rest),
        "help" | "-h" | "--help" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        other => {
            eprintln!("testbed: no command {other:?} (see testbed --help)");
            ExitCode::from(daemon::exit::USAGE)
        }
    }
}

/// The tool and the node's directory, when started as `NODE/bin/TOOL`, with its path or by `PATH`.
fn as_tool(invoked: &Path) -> Option<(&'static str, PathBuf)> {
    let name = invoked.file_name()?.to_str()?;
    let tool = TOOLS.into_iter().find(|tool| *tool == name)?;
    let bin = match invoked.parent() {
        Some(bin) if bin != Path::new("") => bin.to_owned(),
        // A shell that found it by PATH passes the bare name.
        _ => {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).find(|bin| bin.join(name).is_file())?
        }
    };
    Some((tool, bin.parent()?.to_owned()))
}
