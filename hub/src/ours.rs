// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub migrate`, `hub voladm`, …: runs the program of that name that belongs to this installation.
//!
//! A headnode has other programs called `sdc-migrate` and `sdc-volapi` in `/opt/smartdc/bin`, which each update of its
//! tools puts back. So ours are found beside this program alone, never by PATH.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

/// A program of ours, with its arguments.
#[derive(Debug, Subcommand)]
#[command(disable_help_flag = true)]
pub enum Ours {
    /// Move VMs to other nodes: our `sdc-migrate`.
    #[command(disable_help_flag = true)]
    Migrate(Args),
    /// Look after the VMs that store volumes: our `sdc-voladm`.
    #[command(disable_help_flag = true)]
    Voladm(Args),
    /// Send a request to volapi: our `sdc-volapi`.
    #[command(disable_help_flag = true)]
    Volapi(Args),
    /// Keep the packages of volumes: our `sdc-pkgadm`.
    #[command(disable_help_flag = true)]
    Pkgadm(Args),
    /// Read the feed of the data centre: our `sdc-fleet`.
    #[command(disable_help_flag = true)]
    Fleet(Args),
}

/// What the program gets.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its arguments, as it reads them; `--help` among them.
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

impl Ours {
    /// Returns the name of the program, and its arguments.
    fn program(&self) -> (&'static str, &[OsString]) {
        match self {
            Ours::Migrate(args) => ("sdc-migrate", &args.args),
            Ours::Voladm(args) => ("sdc-voladm", &args.args),
            Ours::Volapi(args) => ("sdc-volapi", &args.args),
            Ours::Pkgadm(args) => ("sdc-pkgadm", &args.args),
            Ours::Fleet(args) => ("sdc-fleet", &args.args),
        }
    }
}

/// Becomes the program; returns only if it cannot be started.
pub fn run(ours: &Ours) -> anyhow::Result<ExitCode> {
    let (name, args) = ours.program();
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let path = beside(&own, name);
    // Nothing is spawned: this process becomes the program, with its terminal, signals and exit status.
    #[allow(clippy::disallowed_methods)]
    let error = std::process::Command::new(&path).args(args).exec();
    Err(error)
        .with_context(|| format!("cannot run {}; install the package hub-tools", path.display()))
}

/// Returns the path of a program that lies in the same folder as this one, links resolved; else in the package of the
/// operator's commands, `hub-tools`, whose folder is beside that of this one.
fn beside(own: &Path, name: &str) -> PathBuf {
    let own = own.canonicalize().unwrap_or_else(|_| own.to_path_buf());
    let packages = own.ancestors().nth(3).unwrap_or(Path::new("/"));
    let tools = packages.join("hub-tools/bin").join(name);
    Some(own.with_file_name(name)).filter(|path| path.exists()).unwrap_or(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_beside_what_a_link_names_and_in_the_package_of_the_commands() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(folder.join("package/bin")).unwrap();
        std::fs::create_dir(folder.join("bin")).unwrap();
        std::fs::write(folder.join("package/bin/hub"), "").unwrap();
        std::os::unix::fs::symlink("../package/bin/hub", folder.join("bin/hub")).unwrap();
        // Another program of that name beside the link.
        std::fs::write(folder.join("bin/sdc-migrate"), "").unwrap();
        let found = || beside(&folder.join("bin/hub"), "sdc-migrate");
        assert_eq!(found(), folder.join("hub-tools/bin/sdc-migrate"));
        std::fs::write(folder.join("package/bin/sdc-migrate"), "").unwrap();
        assert_eq!(found(), folder.join("package/bin/sdc-migrate"));
    }
}
