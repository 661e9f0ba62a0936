// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed napi`: the mock as a process.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use super::seed::SeedFile;
use super::{Era, Options, Server};

#[derive(Debug, Parser)]
#[command(name = "testbed napi", about = "A mock NAPI on a socket")]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// master, rfd58, era-c, mid2017 or old2015.
    #[arg(long, default_value = "master")]
    era: Era,
    /// Tags, networks, pools and NICs to start with (JSON).
    #[arg(long)]
    seed: Option<PathBuf>,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    random: u64,
    /// Answer 503 until PUT /_mock/initializing says otherwise.
    #[arg(long)]
    initializing: bool,
    /// Milliseconds between the check and the commit of a write.
    #[arg(long, default_value_t = 0)]
    commit_delay_ms: u64,
    /// Microseconds a list takes per record.
    #[arg(long, default_value_t = 0)]
    record_cost_us: u64,
}

/// Runs the subcommand; the arguments start after its name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args =
        match Args::try_parse_from(std::iter::once(OsString::from("testbed napi")).chain(args)) {
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
            drop(writeln!(std::io::stderr(), "napi: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(args: Args) -> anyhow::Result<()> {
    let seed: Option<SeedFile> = match &args.seed {
        Some(path) => {
            let text =
                std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            Some(
                serde_json::from_slice(&text)
                    .with_context(|| format!("seed file {}", path.display()))?,
            )
        }
        None => None,
    };
    let options = Options {
        era: args.era,
        seed: args.random,
        initializing: args.initializing,
        commit_delay: Duration::from_millis(args.commit_delay_ms),
        record_cost: Duration::from_micros(args.record_cost_us),
        ..Options::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(async {
        let server = Server::start(args.listen, options)
            .await
            .with_context(|| format!("listening on {}", args.listen))?;
        if let Some(seed) = &seed {
            server.store().seed(seed).map_err(anyhow::Error::msg)?;
        }
        let mut out = std::io::stdout();
        writeln!(out, "listening {}", server.url()).context("standard output")?;
        out.flush().context("standard output")?;
        server.wait().await;
        Ok(())
    })
}
