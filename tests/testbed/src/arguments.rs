// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The arguments of the commands.

use std::ffi::OsString;
use std::process::ExitCode;

/// Parses the arguments of a command, or prints what is wrong or the usage and returns the status.
pub(crate) fn parse<A: clap::Parser>(name: &str, args: &[OsString]) -> Result<A, ExitCode> {
    A::try_parse_from(std::iter::once(OsString::from(name)).chain(args.iter().cloned())).map_err(
        |error| {
            drop(error.print());
            ExitCode::from(if error.use_stderr() { daemon::exit::USAGE } else { 0 })
        },
    )
}

/// Runs a command of the testbed: exit 0 if `work` says that it is well, 1 if not or if it could not
/// be done, 2 if the arguments are wrong.
pub(crate) fn command<A: clap::Parser>(
    name: &str,
    args: &[OsString],
    work: impl AsyncFnOnce(A) -> anyhow::Result<bool>,
) -> ExitCode {
    let args = match parse(name, args) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|it| it.block_on(work(args))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(daemon::exit::FAILED),
        Err(why) => {
            eprintln!("{name}: {why:#}");
            ExitCode::from(daemon::exit::FAILED)
        }
    }
}

/// The seed that was given, or one that is drawn; printed, so that a run can be repeated.
pub(crate) fn seed(given: Option<u64>) -> u64 {
    let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("seed {seed}");
    seed
}
