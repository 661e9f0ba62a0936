// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mocks as processes: `mock-triton`, `testbed napi` and `testbed vmapi`.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::faults::{Rule, Server, Service};
use crate::napi::{Era, Options, SeedFile};
use crate::{cnapi, imgapi, napi, papi, vmapi, workflow};

#[derive(Debug, Parser)]
#[command(name = "testbed napi", about = "A mock NAPI on a socket")]
struct Napi {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Tags, networks, pools and NICs to start with (JSON).
    #[arg(long)]
    seed: Option<PathBuf>,
    #[command(flatten)]
    flavour: Flavour,
}

/// How NAPI behaves.
#[derive(Debug, clap::Args)]
struct Flavour {
    /// The NAPI to imitate: master, rfd58, era-c, mid2017 or old2015.
    #[arg(long, default_value = "master")]
    era: Era,
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

impl Flavour {
    fn options(&self) -> Options {
        Options {
            era: self.era,
            seed: self.random,
            initializing: self.initializing,
            commit_delay: Duration::from_millis(self.commit_delay_ms),
            record_cost: Duration::from_micros(self.record_cost_us),
            ..Options::default()
        }
    }
}

#[derive(Debug, Parser)]
#[command(name = "testbed vmapi", about = "A mock VMAPI on a socket")]
struct Vmapi {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// VM records to start with (a JSON array).
    #[arg(long)]
    seed: Option<PathBuf>,
}

/// Mock NAPI, VMAPI, CNAPI, PAPI, IMGAPI and workflow API in one process, for agents and clients under test.
///
/// All keep their records in memory. GET /_mock/ on each lists how to drive it: seed, faults, requests, dump,
/// reset. They imitate the routes that the programs of this project use, not all of Triton.
#[derive(Debug, Parser)]
#[command(name = "mock-triton")]
struct Triton {
    /// Where NAPI listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    napi: SocketAddr,
    /// Where VMAPI listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    vmapi: SocketAddr,
    /// Where CNAPI listens; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    cnapi: SocketAddr,
    /// Where PAPI listens; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    papi: SocketAddr,
    /// Where IMGAPI listens; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    imgapi: SocketAddr,
    /// Where the workflow API listens; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    workflow: SocketAddr,
    /// Records to start with: {"napi": {"nic_tags", "networks", "network_pools", "nics"}, "vmapi": [VM],
    /// "cnapi": [SERVER], "papi": [PACKAGE], "imgapi": [IMAGE], "workflow": [JOB]}.
    #[arg(long, value_name = "FILE")]
    seed: Option<PathBuf>,
    /// Fault rules to start with: {"napi": [RULE], "vmapi": [RULE], ...}, a RULE as {"method": "PUT",
    /// "path": "/nics/*", "times": 1, "action": {"do": "status", "status": 503}}.
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    #[command(flatten)]
    flavour: Flavour,
}

type Record = Map<String, Value>;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Seeds {
    napi: SeedFile,
    vmapi: Vec<Record>,
    cnapi: Vec<Record>,
    papi: Vec<Record>,
    imgapi: Vec<Record>,
    workflow: Vec<Record>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Faults {
    napi: Vec<Rule>,
    vmapi: Vec<Rule>,
    cnapi: Vec<Rule>,
    papi: Vec<Rule>,
    imgapi: Vec<Rule>,
    workflow: Vec<Rule>,
}

/// Runs `testbed napi`; the arguments start after its name.
pub fn napi(args: Vec<OsString>) -> ExitCode {
    run("testbed napi", args, async |args: Napi| {
        let server =
            start_napi(args.listen, &args.flavour, &read::<SeedFile>(args.seed.as_deref())?)
                .await?;
        say(&format!("listening {}", server.url()))?;
        server.wait().await;
        Ok(())
    })
}

/// Runs `testbed vmapi`; the arguments start after its name.
pub fn vmapi(args: Vec<OsString>) -> ExitCode {
    run("testbed vmapi", args, async |args: Vmapi| {
        let server = start_vmapi(args.listen, read(args.seed.as_deref())?).await?;
        say(&format!("listening {}", server.url()))?;
        server.wait().await;
        Ok(())
    })
}

/// Runs `mock-triton`; the arguments start after its name.
pub fn triton(args: impl Iterator<Item = OsString>) -> ExitCode {
    run("mock-triton", args, async |args: Triton| {
        let seeds: Seeds = read(args.seed.as_deref())?;
        let faults: Faults = read(args.faults.as_deref())?;
        let napi = start_napi(args.napi, &args.flavour, &seeds.napi).await?;
        let vmapi = start_vmapi(args.vmapi, seeds.vmapi).await?;
        let cnapi = serve(args.cnapi, cnapi::Store::default()).await?;
        let papi = serve(args.papi, papi::Store::default()).await?;
        let imgapi = serve(args.imgapi, imgapi::Store::default()).await?;
        let workflow = serve(args.workflow, workflow::Store::default()).await?;
        seeds.cnapi.into_iter().for_each(|server| cnapi.store().put_server(server));
        seeds.papi.into_iter().for_each(|package| papi.store().put(package));
        seeds.imgapi.into_iter().for_each(|image| imgapi.store().put(image));
        seeds.workflow.into_iter().for_each(|job| workflow.store().put(job));
        vmapi.store().keep_jobs(workflow.store().clone());
        imgapi.store().keep_jobs(workflow.store().clone(), &workflow.url());
        vmapi.store().peers().workflow_url = workflow.url();
        begin("napi", &napi, faults.napi)?;
        begin("vmapi", &vmapi, faults.vmapi)?;
        begin("cnapi", &cnapi, faults.cnapi)?;
        begin("papi", &papi, faults.papi)?;
        begin("imgapi", &imgapi, faults.imgapi)?;
        begin("workflow", &workflow, faults.workflow)?;
        tokio::join!(
            napi.wait(),
            vmapi.wait(),
            cnapi.wait(),
            papi.wait(),
            imgapi.wait(),
            workflow.wait()
        );
        Ok(())
    })
}

/// Adds the rules of a service, and says where it listens.
fn begin<S: Service>(name: &str, server: &Server<S>, rules: Vec<Rule>) -> anyhow::Result<()> {
    rules.into_iter().for_each(|rule| server.add_fault(rule));
    say(&format!("{name} listening {}", server.url()))
}

async fn start_napi(
    listen: SocketAddr,
    flavour: &Flavour,
    seed: &SeedFile,
) -> anyhow::Result<napi::Server> {
    let store = napi::Store::new(flavour.options());
    store.seed(seed).map_err(anyhow::Error::msg)?;
    serve(listen, store).await
}

async fn start_vmapi(listen: SocketAddr, vms: Vec<Record>) -> anyhow::Result<vmapi::Server> {
    let store = vmapi::Store::default();
    vms.into_iter().for_each(|vm| store.put(vm));
    serve(listen, store).await
}

async fn serve<S: Service>(listen: SocketAddr, store: S) -> anyhow::Result<Server<S>> {
    Server::with_store(listen, store).await.with_context(|| format!("listening on {listen}"))
}

/// Parses a JSON file; the default if there is none.
fn read<T: DeserializeOwned + Default>(path: Option<&Path>) -> anyhow::Result<T> {
    let Some(path) = path else { return Ok(T::default()) };
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("standard output")
}

/// Waits for SIGTERM or Ctrl-C.
async fn told_to_end(mut term: Signal) -> anyhow::Result<()> {
    tokio::select! {
        _ = term.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed.context("waiting for Ctrl-C"),
    }
}

/// Parses the arguments and runs `work` to its end, or to the signal that ends it.
fn run<A: Parser>(
    program: &str,
    args: impl IntoIterator<Item = OsString>,
    work: impl AsyncFnOnce(A) -> anyhow::Result<()>,
) -> ExitCode {
    let args = match A::try_parse_from(std::iter::once(OsString::from(program)).chain(args)) {
        Ok(args) => args,
        Err(error) => {
            // The usage text goes to where clap sends it; nothing else is left to do.
            drop(error.print());
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ends = async |args| {
        let term = signal(SignalKind::terminate()).context("listening for signals")?;
        tokio::select! {
            done = work(args) => done,
            told = told_to_end(term) => told,
        }
    };
    match runtime.context("starting the runtime").and_then(|runtime| runtime.block_on(ends(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "{program}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
