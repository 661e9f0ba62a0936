// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One way to end a program: one clear line on stderr and a status that SMF understands
//! (`smf_method(7)`): 95 and 96 stop the restarter from trying again.

use std::error::Error;
use std::process::ExitCode;

/// It ran and failed.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const USAGE: u8 = 2;
/// SMF: fatal, do not restart (`SMF_EXIT_ERR_FATAL`).
pub const SMF_FATAL: u8 = 95;
/// SMF: misconfigured, do not restart (`SMF_EXIT_ERR_CONFIG`).
pub const SMF_CONFIG: u8 = 96;

/// Prints `program: error: cause: cause` on stderr as one line and gives the exit code.
pub fn report(program: &str, error: &(dyn Error + 'static), code: u8) -> ExitCode {
    eprintln!("{program}: {}", one_line(&crate::log::chain(error)));
    ExitCode::from(code)
}

/// The configuration code: under SMF the one that stops the restarts, else [`USAGE`].
pub fn config_code() -> u8 {
    if std::env::var_os("SMF_FMRI").is_some() { SMF_CONFIG } else { USAGE }
}

/// The code for "another copy runs": under SMF the one that stops the restarts, since a second copy
/// would fail for ever; else [`FAILED`].
pub fn second_code() -> u8 {
    if std::env::var_os("SMF_FMRI").is_some() { SMF_FATAL } else { FAILED }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
