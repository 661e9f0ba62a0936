// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod serve`: reads the configuration, checks that the node's programs exist, and runs the daemon
//! until a signal.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use daemon::Shutdown;
use daemon::cli::{Usage, begin, valid_config};
use daemon::command::{Paths, Program, Spawned};
use futures_util::future::BoxFuture;

use super::args::{NAME, ServeArgs};
use super::client_config;
use crate::config::Config;
use crate::service::{ServeError, check_root, serve};

/// What `serve --console` starts: gets the daemon's address and the page's own if one was given, and
/// ends at the shutdown.
pub type Companion =
    fn(SocketAddr, Option<SocketAddr>, Shutdown) -> BoxFuture<'static, anyhow::Result<()>>;

/// Runs the daemon; `page` is what `--console` starts beside it.
pub async fn run(args: ServeArgs, page: Option<Companion>) -> anyhow::Result<ExitCode> {
    let page = match (args.console, page) {
        (None, _) => None,
        (Some(at), Some(page)) => Some((page, at)),
        (Some(_), None) => {
            let what = "--console: this program has no page; run `console`";
            return Err(Usage(what.to_owned()).into());
        }
    };
    let (mut config, unknown) = Config::read(client_config::fields(args.config.as_deref())?)?;
    config.root = args.root.unwrap_or(config.root);
    if let Some(alone) = args.listen {
        config = Config { listen: alone, socket: None, metrics: None, ..config };
    }
    if args.check_config {
        return Ok(valid_config(NAME, &unknown));
    }
    check_root(&config.root)?;
    check_commands(&config.commands)?;
    let shutdown = begin(NAME, &config.log_level, &unknown).context("signal handlers")?;
    daemon::descriptors::raise(config.http.connections);
    let commands = Arc::new(Spawned::new(config.commands.clone()));
    tracing::info!(root = %config.root.display(), "starting");
    let stop = shutdown.clone();
    let running = match serve(config, commands, shutdown).await {
        Ok(running) => running,
        // A signal during the first load is an orderly end.
        Err(ServeError::Stopped) if stop.is_triggered() => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error.into()),
    };
    let beside = page.map(|(page, at)| page(running.address, at, stop));
    let shown = async {
        // The daemon continues without its page.
        if let Some(beside) = beside
            && let Err(error) = beside.await
        {
            tracing::error!(%error, "cannot serve the page");
        }
    };
    let (ended, ()) = tokio::join!(running.ended(), shown);
    if !ended {
        tracing::warn!("some tasks did not stop within their time");
    }
    Ok(ExitCode::SUCCESS)
}

fn check_commands(paths: &Paths) -> anyhow::Result<()> {
    for program in [Program::Zoneadm, Program::Zfs, Program::Kstat, Program::Sysevent] {
        let path = paths.of(program);
        let reason = match std::fs::metadata(path) {
            Ok(stat) if stat.is_file() && stat.permissions().mode() & 0o111 != 0 => continue,
            Ok(_) => "is not an executable file".to_owned(),
            Err(error) => error.to_string(),
        };
        bail!("command {program} {}: {reason}", path.display());
    }
    Ok(())
}
