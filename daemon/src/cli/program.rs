// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a program runs, from `main` to its exit code.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use std::{fmt, io};

use clap::Parser;
use sdc_clients::Class;
use tokio::time::sleep;

use super::grammar::parse;
use super::screen::{self, Screen};
use super::table::UnknownColumn;
use crate::config::{ConfigError, environment};
use crate::tasks::Shutdown;
use crate::text::visible;
use crate::{disk, exit, log};

/// The interval at which a missing configuration file is looked for.
const CONFIG_POLL: Duration = Duration::from_secs(10);
/// The users of this machine.
const PASSWD: &str = "/etc/passwd";

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

/// Parses the arguments, which begin with the program's name, and runs the work with them.
pub fn main<C: Parser, F: Future<Output = ExitCode>>(
    program: &str,
    args: impl Iterator<Item = OsString>,
    work: impl FnOnce(C) -> F,
) -> ExitCode {
    match parse(args) {
        Ok(cli) => run(program, work(cli)),
        Err(code) => code,
    }
}

/// Begins a daemon: opens its log, names the unknown keys of its configuration there, and returns the
/// signal that SIGTERM and SIGINT give.
pub fn begin(program: &'static str, log_level: &str, unknown: &[String]) -> io::Result<Shutdown> {
    log::init(program, log_level);
    for key in unknown {
        tracing::warn!(key, "ignored an unknown key in the configuration");
    }
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    Ok(shutdown)
}

/// Loads a configuration whose file config-agent writes late on a fresh node, or with holes while SAPI does not have what
/// belongs there: looks for it every ten seconds, as the shipped agents do. Returns none on shutdown.
pub async fn late_config<C: Send + 'static>(
    program: &'static str,
    load: impl Fn() -> Result<C, ConfigError> + Clone + Send + 'static,
    shutdown: &Shutdown,
) -> Result<Option<C>, ConfigError> {
    let mut said = None;
    loop {
        let Some(loaded) = disk::blocking(load.clone()).await else { continue };
        let waits = match &loaded {
            Err(ConfigError::Read { source, path }) if source.kind() == io::ErrorKind::NotFound => {
                format!("waiting for the configuration file {}", path.display())
            }
            Err(error @ ConfigError::Unset { .. }) => error.to_string(),
            _ => return loaded.map(Some),
        };
        if said.as_ref() != Some(&waits) {
            if said.is_none() {
                log::init(program, "info");
            }
            tracing::warn!("{waits}");
            said = Some(waits);
        }
        // Both arms are cancel-safe.
        tokio::select! {
            () = shutdown.wait() => return Ok(None),
            () = sleep(CONFIG_POLL) => {}
        }
    }
}

/// Returns who runs the program, for what is recorded of it: the user of its uid, or the one whom sudo made root.
pub fn author() -> String {
    let users = std::fs::read_to_string(PASSWD).unwrap_or_default();
    let sudo = environment("SUDO_UID").and_then(|uid| uid.into_string().ok()?.parse().ok());
    author_of(&users, rustix::process::getuid().as_raw(), sudo)
}

/// Root alone is believed to act for another user: anyone may set an environment.
fn author_of(users: &str, uid: u32, sudo: Option<u32>) -> String {
    let name = |uid: u32| {
        let of = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
        };
        users.lines().find_map(of).unwrap_or_else(|| format!("uid {uid}"))
    };
    name(sudo.filter(|_| uid == 0).unwrap_or(uid))
}

/// Wrong usage of the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Prints what a command returned, or why it failed: wrong usage and a wrong configuration have a code of
/// their own.
pub fn finish<E>(program: &str, done: Result<String, E>) -> ExitCode
where
    E: std::ops::Deref<Target = dyn Error + Send + Sync>,
{
    match done {
        Ok(text) => print(program, &text),
        // A reader that went away, as in `print`.
        Err(error) if error.downcast_ref().is_some_and(is_broken_pipe) => ExitCode::SUCCESS,
        Err(error) => match refusal(&*error) {
            Some(said) => exit::report(program, &Refusal(said), exit::FAILED),
            None => exit::report(program, &*error, code_of(&*error, exit::USAGE)),
        },
    }
}

/// A service has refused, or is not there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// What the user needs to know: the service's own reason, or where nothing answers.
fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        match inner.downcast_ref::<sdc_clients::Error>() {
            Some(absent) if absent.class() == Class::Connect => {
                return Some(absent.message().to_owned());
            }
            Some(refused) => {
                let text = refused.peer_text()?;
                return Some(format!("{}: {}", log::chain(error), visible(&text)));
            }
            None => cause = inner.source(),
        }
    }
    None
}

/// The same for what a daemon's unit starts: under SMF a wrong configuration has SMF's code.
pub fn ended<E>(program: &str, done: Result<ExitCode, E>) -> ExitCode
where
    E: std::ops::Deref<Target = dyn Error + Send + Sync>,
{
    done.unwrap_or_else(|error| {
        exit::report(program, &*error, code_of(&*error, exit::config_code()))
    })
}

fn code_of(error: &(dyn Error + 'static), wrong_config: u8) -> u8 {
    let mut cause = Some(error);
    while let Some(error) = cause {
        match () {
            () if error.is::<ConfigError>() => return wrong_config,
            () if error.is::<Usage>() || error.is::<UnknownColumn>() => return exit::USAGE,
            () => cause = error.source(),
        }
    }
    exit::FAILED
}

/// Writes to stdout. A reader that went away (`| head`) is no failure.
pub fn print(program: &str, text: &str) -> ExitCode {
    match screen::write(text) {
        Err(error) if !is_broken_pipe(&error) => exit::report(program, &error, exit::FAILED),
        _ => ExitCode::SUCCESS,
    }
}

/// How long what [`again`] prints stands.
const AGAIN: Duration = Duration::from_secs(2);

/// Prints what is made, again every two seconds until nobody reads it: on a terminal in place of the last, else behind an
/// empty line. What fails later is said, and made again.
///
/// # Errors
/// If it fails the first time.
pub async fn again<E: fmt::Display>(
    program: &str,
    screen: Screen,
    make: impl AsyncFn() -> Result<String, E>,
) -> Result<ExitCode, E> {
    let (before, after) = if screen.is_terminal { ("\u{1b}[H\u{1b}[J", "") } else { ("", "\n") };
    let mut text = make().await?;
    loop {
        match screen::write(&format!("{before}{text}{after}")) {
            Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Ok(exit::report(program, &error, exit::FAILED)),
            Ok(()) => sleep(AGAIN).await,
        }
        let failed = |error: E| format!("{program}: {}\n", visible(&format!("{error:#}")));
        text = make().await.unwrap_or_else(failed);
    }
}

fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_it_is_the_systems_word() {
        let users =
            "root:x:0:0::/root:/bin/bash\n# a comment\nada:x:1000:100:A:/home/ada:/bin/sh\n";
        for (uid, sudo, want) in [
            (0, None, "root"),
            (0, Some(1000), "ada"),
            (1000, None, "ada"),
            (1000, Some(0), "ada"),
            (7, None, "uid 7"),
        ] {
            assert_eq!(author_of(users, uid, sudo), want, "{uid} {sudo:?}");
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        for (kind, want) in [
            (io::ErrorKind::BrokenPipe, ExitCode::SUCCESS),
            (io::ErrorKind::StorageFull, ExitCode::from(exit::FAILED)),
        ] {
            let error: Box<dyn Error + Send + Sync> = io::Error::from(kind).into();
            let code = finish("program", Err::<String, _>(error));
            assert_eq!(format!("{code:?}"), format!("{want:?}"), "{kind}");
        }
    }
}
