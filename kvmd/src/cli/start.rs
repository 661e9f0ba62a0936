// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `kvmd start|serve`: the daemon until a signal. `kvmd clear`: the admin path's half of the marker's
//! contract, which needs no daemon.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use daemon::cli::{Progress, Usage, begin, ended, valid_config};
use daemon::http::url_of;
use daemon::lock::LockError;
use daemon::{ConfigError, exit};
use sdc_clients::http::{Call, Http};
use tokio::time::{Instant, sleep};

use super::args::{ConfigFile, NAME, ServeArgs};
use super::settings::load;
use crate::config::Config;
use crate::marker::{Clears, is_name, marker_of};
use crate::service::{ServeError, serve};

/// A daemon in the background must serve within this.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Runs the daemon; if `again`, another running copy is a success.
pub async fn run(args: ServeArgs, again: bool) -> ExitCode {
    let done = daemon(args).await;
    match done.as_ref().err().and_then(|error| error.downcast_ref()) {
        Some(ServeError::NotNeeded(reason)) => {
            eprintln!("{NAME}: not needed: {reason}");
            ExitCode::SUCCESS
        }
        Some(ServeError::Lock(LockError::Held { .. })) if again => {
            eprintln!("{NAME}: runs already");
            ExitCode::SUCCESS
        }
        Some(error @ ServeError::Lock(LockError::Held { .. })) => {
            exit::report(NAME, error, exit::second_code())
        }
        _ => ended(NAME, done),
    }
}

async fn daemon(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let (config, unknown) = settings(&args)?;
    if args.check_config {
        return Ok(valid_config(NAME, &unknown));
    }
    let shutdown = begin(NAME, &config.log_level, &unknown);
    let shutdown = shutdown.context("cannot install signal handlers")?;
    daemon::descriptors::raise(daemon::http::Limits::default().connections);
    let running = serve(config, args.root, shutdown).await?;
    if !running.ended().await {
        tracing::warn!("some tasks did not stop within their time");
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &ServeArgs) -> Result<(Config, Vec<String>), ConfigError> {
    let (mut config, unknown) = load(&args.file)?;
    config.need.enabled |= args.enable;
    config.listen = args.listen.unwrap_or(config.listen);
    config.rule = args.rule.unwrap_or(config.rule);
    if let Some(run_dir) = &args.run_dir {
        config.run_dir.clone_from(run_dir);
    }
    if let (Some(control), Some(dir)) = (&mut config.control, &args.control) {
        control.dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    }
    Ok((config, unknown))
}

/// Starts the program without this terminal and waits until it serves, or has ended with success because
/// it runs already or is not needed.
pub async fn background(
    args: &[OsString],
    serve: ServeArgs,
    log: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let (config, _) = settings(&serve)?;
    let failed = |error: std::io::Error| anyhow!(error).context("cannot start in the background");
    let output = || -> std::io::Result<Stdio> {
        Ok(match &log {
            None => Stdio::null(),
            Some(path) => std::fs::OpenOptions::new().create(true).append(true).open(path)?.into(),
        })
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = {
        #[allow(clippy::disallowed_methods)]
        // CONTRIBUTING.md, "Seams": itself, to outlive this process.
        let mut command = tokio::process::Command::new(program);
        let rest = args.iter().skip(1).filter(|arg| *arg != "--background");
        let rest: Vec<&OsString> = without_log(rest);
        command.args(rest).process_group(0).stdin(Stdio::null());
        command.stdout(output().map_err(failed)?).stderr(output().map_err(failed)?);
        command.spawn().map_err(failed)?
    };
    let agent = concat!("kvmd/", env!("CARGO_PKG_VERSION"));
    let http = Http::new(&url_of(config.listen), agent)?.without_retries();
    let _shown = Progress::begin("waiting for kvmd to serve");
    let deadline = Instant::now() + UP_WITHIN;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().map_err(failed)? {
            // It runs already, or is not needed.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(exit::FAILED)));
        }
        // Another copy answers too. Then the child must end: it would take the other's place if that one
        // stopped before the child has found it.
        if child.id().is_some() && served_by(&http).await == child.id() {
            return Ok(ExitCode::SUCCESS);
        }
        sleep(Duration::from_millis(20)).await;
    }
    // After this error it must not be found running later.
    child.kill().await.map_err(failed)?;
    bail!("it did not serve within {} s and was killed", UP_WITHIN.as_secs())
}

/// Returns the pid that answers there, if any.
async fn served_by(http: &Http) -> Option<u32> {
    let reply = http.execute(Call::get(&["status"])).await.ok()?;
    reply.object().ok()?.get("pid")?.as_u64()?.try_into().ok()
}

fn without_log<'a>(args: impl Iterator<Item = &'a OsString>) -> Vec<&'a OsString> {
    let mut kept = Vec::new();
    let mut args = args;
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if text == "--log" {
            args.next();
        } else if !text.starts_with("--log=") {
            kept.push(arg);
        }
    }
    kept
}

/// Clears an instance's marker, whether a daemon runs or not.
pub fn clear(
    name: &str,
    file: &ConfigFile,
    dir: Option<PathBuf>,
    run_dir: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    ensure!(is_name(name), Usage(format!("{name:?} is not an instance's name")));
    let (config, _) = load(file)?;
    let no_control = || Usage("no control directory: nothing has markers here".to_owned());
    let control = config.control.ok_or_else(no_control)?;
    let socket = dir.unwrap_or(control.dir).join(format!("{name}.{}", control.extension));
    Clears::below(&run_dir.unwrap_or(config.run_dir))
        .clear(name, &marker_of(&socket))
        .with_context(|| format!("cannot clear the marker of {name}"))?;
    Ok(ExitCode::SUCCESS)
}
