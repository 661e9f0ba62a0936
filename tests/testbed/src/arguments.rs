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
