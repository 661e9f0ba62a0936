// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line of `testbed`. The binary also runs as a tool of a simulated node if it is
//! started under that name (`zoneadm`, `zfs`, …: `simnode::TOOLS`), and as a daemon if its first
//! argument is `@vminfod`, `@net-agent` or another one's name: a lab needs one executable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::{churn, conform, lab, process};

const USAGE: &str = "\
usage: testbed COMMAND [ARGS]

  lab       a simulated node, vminfod, net-agent and a mock NAPI, and a story on them
  break     break something in a lab that is up: an agent, a node, zfs, NAPI, a pool, a storage VM
  cure      end that
  cn        create and look at simulated compute nodes
  vm        do to a VM of a simulated node what vmadm does
  napi      a mock NAPI
  vmapi     a mock VMAPI
  conform   compare this implementation with recorded behaviour
  recordings  unpack or repack what conform compares with
  openapi   the interface of a service as OpenAPI has it
  shadow    what two daemons on one node answer differently
  storm     thousands of mutations with listeners coming and going
  sim       the whole system under a seeded world, invariants checked after every step
  migrate-explore  whole migrations, a fault at each point
  migrate-kill  migrations with real programs, kill -9 at chosen moments
  chaos     random operations on a node, then old cache = fresh cache = the node
  swarm     ten thousand agents against one NAPI, on a virtual clock
  fleet-feed  the feed of many nodes on real nats-servers, kill -9 of anything
  soak      churn for minutes, and what grows
  fuzz      run every parser over generated input for a while
  bench     measure against limits taken in the same run

`testbed COMMAND --help` tells more.
";

/// Runs the program; `args` begin with the name it was started under.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut args = args;
    let invoked = PathBuf::from(args.next().unwrap_or_default());
    let rest: Vec<OsString> = args.collect();
    if let Some((tool, node)) = simnode::exec::as_tool(&invoked) {
        process::die_with_parent();
        return simnode::exec::run(tool, &node, rest);
    }
    let Some((command, rest)) = rest.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(daemon::exit::USAGE);
    };
    let rest = rest.to_vec();
    match command.to_str().unwrap_or_default() {
        "@fleet-nodes" | "@fleet-mirror" | "@fleet-page" => {
            process::die_with_parent();
            match command.to_str() {
                Some("@fleet-nodes") => crate::fleet_feed::nodes(&rest),
                Some("@fleet-page") => crate::fleet_feed::page(&rest),
                _ => crate::fleet_feed::mirror(&rest),
            }
        }
        "@sdc-oneachnode" => lab::oneachnode::run(&rest),
        daemon if daemon.starts_with('@') => {
            process::die_with_parent();
            let name = daemon.trim_start_matches('@');
            let args = std::iter::once(OsString::from(name)).chain(rest.clone());
            match name {
                // The same program by its three names.
                "vminfod" | "vminfo" | "vmadm" => vminfod::cli::run(args),
                "net-agent" => net_agent::cli::run(args),
                "vm-agent" => vm_agent::cli::run(args),
                "kvmd" => kvmd::cli::run(args),
                "console" | "console-fleet" => console::cli::run(args),
                "migration-agent" => migration_agent::cli::run(args),
                "migration-service" => migration_service::cli::run(args),
                "sdc-migrate" => sdc_migrate::run(args),
                "volapi" => volapi::cli::run(args),
                "sdc-voladm" => volumes_cli::voladm::run(args),
                "sdc-volapi" => volumes_cli::voladm::curl::run(args),
                "sdc-pkgadm" => volumes_cli::pkgadm::run(args),
                "fleet-agent" => fleet_agent::cli::run(args),
                "sdc-fleet" => fleet_cli::cli::run(args),
                "hub" => hub::cli::run(args),
                "svcadm" => lab::control::svcadm(&rest),
                _ => unknown(daemon),
            }
        }
        "lab" => lab::cli::run(rest),
        "break" => lab::control::breaks(&rest),
        "cure" => lab::control::cures(&rest),
        "cn" | "vm" => simnode::cli::run("testbed", std::iter::once(command.clone()).chain(rest)),
        "napi" => mocks::cli::napi(rest),
        "vmapi" => mocks::cli::vmapi(rest),
        "conform" => conform::run(&rest),
        "recordings" => conform::packed::run(&rest),
        "openapi" => crate::openapi::run(&rest),
        "shadow" => crate::shadow::run(&rest),
        "storm" => churn::run(churn::Question::Storm, &rest),
        "sim" => crate::sim::run(&rest),
        "migrate-explore" => crate::explore::run(&rest),
        "migrate-kill" => crate::kills::run(&rest),
        "chaos" => churn::run(churn::Question::Chaos, &rest),
        "swarm" => crate::swarm::run(&rest),
        "fleet-feed" => crate::fleet_feed::run(&rest),
        "soak" => churn::run(churn::Question::Soak, &rest),
        "fuzz" => crate::fuzz::run(&rest),
        "bench" => crate::bench::run(&rest),
        "help" | "-h" | "--help" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        other => unknown(other),
    }
}

fn unknown(command: &str) -> ExitCode {
    eprintln!("testbed: no command {command:?} (see testbed --help)");
    ExitCode::from(daemon::exit::USAGE)
}
