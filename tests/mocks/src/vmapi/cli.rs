// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed vmapi`: the mock as a process.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use serde_json::{Map, Value};

use super::Server;

#[derive(Debug, Parser)]
#[command(name = "testbed vmapi", about = "A mock VMAPI on a socket")]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// VM records to start with (a JSON array).
    #[arg(long)]
    seed: Option<PathBuf>,
}

/// Runs the subcommand; the arguments start after its name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args =
        match Args::try_parse_from(std::iter::once(OsString::from("testbed vmapi")).chain(args)) {
            Ok(args) => args,
            Err(error) => {
                // The usage text goes to where clap sends it; nothing else is left to do.
                drop(error.print());
                return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
            }
        };
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "vmapi: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(args: Args) -> anyhow::Result<()> {
    let vms: Vec<Map<String, Value>> = match &args.seed {
        Some(path) => {
            let text =
                std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            serde_json::from_slice(&text)
                .with_context(|| format!("seed file {}", path.display()))?
        }
        None => Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(async {
        let server = Server::start(args.listen)
            .await
            .with_context(|| format!("listening on {}", args.listen))?;
        vms.into_iter().for_each(|vm| server.store().put(vm));
        let mut out = std::io::stdout();
        writeln!(out, "listening {}", server.url()).context("standard output")?;
        out.flush().context("standard output")?;
        server.wait().await;
        Ok(())
    })
}
