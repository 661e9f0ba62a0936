// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a program ends: one line on stderr, and an exit code that SMF understands (`smf_method(7)`): with 95
//! and 96 the restarter does not try again.

use std::error::Error;
use std::process::ExitCode;

use crate::text::visible;

/// It ran and failed.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const USAGE: u8 = 2;
/// SMF: fatal, do not restart (`SMF_EXIT_ERR_FATAL`).
pub const SMF_FATAL: u8 = 95;
/// SMF: misconfigured, do not restart (`SMF_EXIT_ERR_CONFIG`).
pub const SMF_CONFIG: u8 = 96;

/// Prints `program: error: cause: cause` on stderr as one line and returns the exit code. What a peer said
/// controls no terminal.
pub fn report(program: &str, error: &(dyn Error + 'static), code: u8) -> ExitCode {
    eprintln!("{program}: {}", one_line(&crate::log::chain(error)));
    ExitCode::from(code)
}

/// Returns the code for a wrong configuration: [`SMF_CONFIG`] under SMF, else [`USAGE`].
pub fn config_code() -> u8 {
    if std::env::var_os("SMF_FMRI").is_some() { SMF_CONFIG } else { USAGE }
}

/// Returns the code for "another copy runs": [`SMF_FATAL`] under SMF, else [`FAILED`].
pub fn second_code() -> u8 {
    if std::env::var_os("SMF_FMRI").is_some() { SMF_FATAL } else { FAILED }
}

fn one_line(text: &str) -> String {
    visible(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}
