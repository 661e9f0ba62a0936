// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a program runs, from `main` to its exit code.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use super::screen;
use crate::tasks::Shutdown;
use crate::{exit, log};

/// Runs the work on a runtime of several threads.
pub fn run(program: &str, work: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(program, &error, exit::FAILED),
    };
    let code = runtime.block_on(work);
    // Threads that hang in a file system must not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}

/// Begins a daemon: opens its log, names the unknown keys of its configuration there, and returns the
/// signal that SIGTERM and SIGINT give.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn begin(program: &'static str, log_level: &str, unknown: &[String]) -> io::Result<Shutdown> {
    log::init(program, log_level);
    for key in unknown {
        tracing::warn!(key, "unknown key in the configuration");
    }
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    Ok(shutdown)
}

/// Writes to stdout. A reader that went away (`| head`) is no failure.
pub fn print(program: &str, text: &str) -> ExitCode {
    match screen::write(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            exit::report(program, &error, exit::FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
