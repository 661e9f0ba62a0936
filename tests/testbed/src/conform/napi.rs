// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform napi FILE`: replays exchanges recorded from the real NAPI against the mock
//! and reports every answer that differs. It never excuses a difference that the format of
//! the recordings does not call volatile.

mod compare;
mod replay;
mod transcript;
mod wire;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use daemon::cli::progress::during;

pub use replay::{LEFT_OUT, Outcome, replay};
pub use transcript::{Transcript, TranscriptError};

/// Runs the cases found at the path; flags follow it: `--only GROUP` replays one group.
pub fn run(path: &Path, flags: &[String]) -> ExitCode {
    let mut err = std::io::stderr();
    let only = match flags {
        [] => None,
        [flag, group] if flag == "--only" => Some(group.as_str()),
        _ => {
            drop(writeln!(err, "conform napi: unknown flags {flags:?}; there is --only GROUP"));
            return ExitCode::from(2);
        }
    };
    let transcript = match Transcript::read(path) {
        Ok(transcript) => transcript,
        Err(error) => {
            drop(writeln!(err, "conform napi: {error}"));
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            drop(writeln!(err, "conform napi: starting the runtime: {error}"));
            return ExitCode::from(2);
        }
    };
    let outcome = during("replaying NAPI", || runtime.block_on(replay(&transcript, only)));
    match print(&outcome) {
        Ok(()) if outcome.failures.is_empty() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(err, "conform napi: standard output: {error}"));
            ExitCode::from(2)
        }
    }
}

fn print(outcome: &Outcome) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for failure in &outcome.failures {
        writeln!(out, "{failure}")?;
    }
    if LEFT_OUT.is_empty() {
        writeln!(out, "left out: none")?;
    }
    for (name, reason) in LEFT_OUT {
        writeln!(out, "left out: {name} ({reason})")?;
    }
    writeln!(out, "{} passed, {} failed", outcome.passed, outcome.failures.len())
}
