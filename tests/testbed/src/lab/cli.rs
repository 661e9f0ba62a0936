// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed lab`: creates the world, plays the story, stays up or prints the outcome, and cleans
//! up.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use daemon::exit;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use tokio::task::JoinSet;

use super::error::LabError;
use super::feed::Feed;
use super::options::{Part, WorldOptions};
use super::screen::{Screen, Voice};
use super::volumes::{self, Volumes};
use super::world::{World, shown, this_program};
use super::{jobs, moves, seed, tour};
use mocks::napi::Era;
use mocks::workflow;

/// A simulated node with vminfod, net-agent and vm-agent on it, a mock NAPI and VMAPI, and a story.
#[derive(Debug, Parser)]
#[command(name = "testbed lab")]
struct Args {
    /// End after the story: exit 0 if everything came true, else 1
    #[arg(long)]
    once: bool,
    /// The story to play
    #[arg(long, value_enum, default_value_t = Script::Tour)]
    script: Script,
    /// Divides every wait of net-agent and vminfod; 1 is production
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=2000))]
    speed: u32,
    /// Where to put everything; kept afterwards if given, else temporary
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Nodes; the story is played on the first, whose page it is. With two or more, VMs can be migrated
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    nodes: u32,
    /// VMs on each node
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    vms: u32,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The age of NAPI to imitate: master, rfd58, era-c, mid2017, old2015
    #[arg(long, default_value = "master")]
    era: Era,
    /// Daemons to leave out: your own agent can take their place
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    without: Vec<Part>,
    /// vminfod and net-agent alone, with their story: events, leaked NICs, records without a node, states, a hold
    #[arg(long, conflicts_with_all = ["with", "without", "nodes"])]
    core: bool,
    /// What else to have, and to play
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    with: Vec<Extra>,
    /// Port of vminfod (0: a free one)
    #[arg(long, default_value_t = 0)]
    vminfod_port: u16,
    /// Port of net-agent's status (0: a free one)
    #[arg(long, default_value_t = 0)]
    agent_port: u16,
    /// Port of the web page (0: a free one)
    #[arg(long, default_value_t = 0)]
    console_port: u16,
    /// Port of the mock NAPI (0: a free one)
    #[arg(long, default_value_t = 0)]
    napi_port: u16,
    /// Port of the mock VMAPI (0: a free one)
    #[arg(long, default_value_t = 0)]
    vmapi_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Extra {
    /// Shared volumes: volapi, whose storage VMs are VMs of the node
    Volumes,
    /// The feed of the data centre: nats-server where it is installed, fleet-agent on each node
    Fleet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Script {
    /// Boot, quota by zfs, delete behind vmadm's back; with two nodes, a migration
    Tour,
    /// No story
    None,
}

/// What was asked for with `--with`; it runs as long as this is kept.
#[derive(Debug, Default)]
struct Services {
    /// VMAPI's jobs, where volumes have not their own.
    jobs: Option<workflow::Server>,
    volumes: Option<Volumes>,
    feed: Option<Feed>,
}

/// Runs `testbed lab`; the arguments start after that word.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let mut args: Args = match crate::arguments::parse("testbed lab", &args) {
        Ok(args) => args,
        Err(status) => return status,
    };
    if args.core {
        let all = Part::value_variants().iter().copied();
        args.without = all.filter(|part| *part != Part::NetAgent).collect();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => return exit::report("testbed lab", &err, exit::FAILED),
    };
    match runtime.block_on(lab(args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::FAILED),
        Err(err) => exit::report("testbed lab", &err, exit::FAILED),
    }
}

async fn lab(args: Args) -> Result<bool, LabError> {
    let shutdown = daemon::Shutdown::new();
    shutdown.on_signals().map_err(LabError::io("installing signal handlers"))?;
    // Dropping it removes the directory, whatever happened before.
    let temporary = tempfile::Builder::new()
        .prefix("lab-")
        .tempdir()
        .map_err(LabError::io("making a temporary directory"))?;
    let dir = args.dir.clone().unwrap_or_else(|| temporary.path().join("cn"));
    let screen = Screen::default();
    let mut world = World::create(WorldOptions {
        vms: args.vms,
        seed: args.seed,
        era: args.era,
        speed: args.speed,
        vminfod_port: args.vminfod_port,
        agent_port: args.agent_port,
        console_port: args.console_port,
        napi_port: args.napi_port,
        vmapi_port: args.vmapi_port,
        ..WorldOptions::new(&dir, this_program()?)
    })
    .await?;
    let (mut ended, mut followers) = (world.ended(), JoinSet::new());
    let (mut others, mut services) = (Vec::new(), Services::default());
    // Cancel-safe: whichever arm is dropped, the worlds are stopped below.
    let result = tokio::select! {
        result = begin(&args, &mut world, &mut others, &mut services, &screen, &mut followers) => result,
        Some(ended) = ended.recv() => Err(ended),
        () = shutdown.wait() => Ok(true),
    };
    if result.is_ok() && !args.once && !shutdown.is_triggered() {
        if let Some(volumes) = services.volumes.as_ref().filter(|_| rig::nfs::why_not().is_none()) {
            let worlds = std::iter::once(&world).chain(&others);
            followers.spawn(volumes.keep(worlds.map(|world| world.node().clone()).collect()));
        }
        world.is_up().await;
        hints(&args, &world, &screen).await;
        // Both arms are cancel-safe.
        while let Some(ended) = tokio::select! {
            ended = ended.recv() => ended,
            () = shutdown.wait() => None,
        } {
            screen.say(Voice::Lab, &ended.to_string());
        }
    }
    followers.shutdown().await;
    screen.say(Voice::Lab, "stopping");
    for other in others {
        other.stop().await?;
    }
    world.stop().await?;
    if args.dir.is_some() {
        screen.say(Voice::Lab, &format!("kept {}", shown(&dir)));
    }
    Ok(result? || !args.once)
}

/// Starts everything and plays the story; returns whether it came true.
async fn begin(
    args: &Args,
    world: &mut World,
    others: &mut Vec<World>,
    services: &mut Services,
    screen: &Screen,
    followers: &mut JoinSet<()>,
) -> Result<bool, LabError> {
    let say = |text: &str| screen.say(Voice::Lab, text);
    let is_in = |part| !args.without.contains(&part);
    say(&format!("a node of {} VMs in {}", args.vms, shown(world.node().dir())));
    world.start_vminfod().await?;
    say(&format!("vminfod   {}  (pid {})", world.vminfod_url(), pid(world.pid("vminfod"))));
    let hub = world.hub()?;
    let vms = hub.vms(true).await.map_err(LabError::request("listing the VMs"))?.vms;
    let wrongs = seed::fill(world, &vms)?;
    say(&format!("NAPI      {}  ({:?}, mock)", world.napi.url(), args.era));
    say(&format!("VMAPI     {}  (mock)", world.vmapi.url()));
    say(&format!(
        "NAPI holds {} NICs of live VMs ({} without cn_uuid, {} stuck in provisioning) and {} leaked ones",
        wrongs.live.len(),
        wrongs.bare.len(),
        wrongs.stuck.len(),
        wrongs.leaked.len()
    ));
    followers.spawn(screen.clone().follow_hub(hub));
    followers.spawn(screen.clone().follow_napi(world.napi.store().clone()));
    followers.spawn(screen.clone().follow_vmapi(world.vmapi.store().clone()));
    if is_in(Part::NetAgent) {
        world.start_agent().await?;
        say(&format!("net-agent {}  (pid {})", world.agent_url(), pid(world.pid("net-agent"))));
    }
    if is_in(Part::VmAgent) {
        world.start_vm_agent().await?;
        say(&format!("vm-agent  {}", world.vm_agent_url()));
    }
    if is_in(Part::Kvmd) {
        world.start_kvmd().await?;
        say(&format!("kvmd      {}", world.kvmd_url()));
    }
    for nth in 1..args.nodes {
        others.push(world.beside(nth).await?);
        if let Some(other) = others.last_mut() {
            begin_other(args, other, screen).await?;
        }
    }
    let has_volumes = args.with.contains(&Extra::Volumes);
    if (args.nodes > 1 || has_volumes) && is_in(Part::MigrationAgent) {
        world.start_migration_agent().await?;
        say(&format!("migration-agent {}, one on each node", world.migration_agent_url()));
    }
    if args.nodes > 1 {
        say(&format!("CNAPI     {}  (mock, {} nodes)", world.cnapi_url(), args.nodes));
    }
    if (args.nodes > 1 || has_volumes) && is_in(Part::MigrationService) {
        world.start_migration_service().await?;
        say(&format!("migration-service {}  (in front of VMAPI)", world.migrations_url()));
    }
    if has_volumes {
        services.volumes = Some(Volumes::start(world).await?);
        say(&format!("volapi    {}", world.volapi_url()));
    } else {
        services.jobs = Some(jobs::start(world).await?);
    }
    services.feed = feed(args, world, others, screen).await?;
    if is_in(Part::Console) {
        world.start_console().await?;
        say(&format!("console   {}", world.console_url()));
    }
    if args.script == Script::None {
        return Ok(true);
    }
    if !(is_in(Part::NetAgent) && (is_in(Part::VmAgent) || args.core)) {
        say("no story: it needs net-agent and vm-agent");
        return Ok(true);
    }
    let mut outcome = tour::play(world, &wrongs, screen).await?;
    if let Some(other) = others.first().filter(|_| world.has_migrations()) {
        moves::play([world, other], screen, &mut outcome).await?;
    }
    if let Some(volumes) = &mut services.volumes {
        let other = others.first().filter(|_| world.has_migrations());
        volumes.play(world, other, screen, &mut outcome).await?;
    }
    if let Some(feed) = &services.feed {
        feed.play(world, others.first_mut(), screen, &mut outcome).await?;
    }
    say(&outcome.summary());
    Ok(outcome.is_good())
}

/// Starts the feed, where it is asked for and there is a server.
async fn feed(
    args: &Args,
    world: &mut World,
    others: &mut [World],
    screen: &Screen,
) -> Result<Option<Feed>, LabError> {
    if !args.with.contains(&Extra::Fleet) {
        return Ok(None);
    }
    if let Some(why) = rig::nats::why_not() {
        screen.say(Voice::Lab, &format!("no feed: {why}"));
        return Ok(None);
    }
    let feed = Feed::start(world, others).await?;
    screen.say(Voice::Lab, &format!("feed      {}  (fleet-agent on each node)", feed.address()));
    screen.say(Voice::Lab, &format!("page of the data centre {}/", feed.page()));
    Ok(Some(feed))
}

/// Starts everything on another node, whose records are right.
async fn begin_other(args: &Args, world: &mut World, screen: &Screen) -> Result<(), LabError> {
    let is_in = |part| !args.without.contains(&part);
    let dir = shown(world.node().dir());
    world.start_vminfod().await?;
    let vms = world.hub()?.vms(true).await.map_err(LabError::request("listing the VMs"))?.vms;
    seed::fill_right(world, &vms)?;
    if is_in(Part::NetAgent) {
        world.start_agent().await?;
    }
    if is_in(Part::VmAgent) {
        world.start_vm_agent().await?;
    }
    if is_in(Part::Kvmd) {
        world.start_kvmd().await?;
    }
    if is_in(Part::MigrationAgent) {
        world.start_migration_agent().await?;
    }
    let (cn, url) = (world.node().cn_uuid(), world.vminfod_url());
    screen.say(Voice::Lab, &format!("node {cn} of {} VMs in {dir}, vminfod {url}", vms.len()));
    Ok(())
}

async fn hints(args: &Args, world: &World, screen: &Screen) {
    let dir = shown(world.node().dir());
    let left = match args.dir {
        Some(_) => format!("keeps {dir}"),
        None => "removes everything".to_owned(),
    };
    screen.say(Voice::Lab, &format!("up; Ctrl-C ends it and {left}"));
    if !args.without.contains(&Part::Console) {
        screen.say(Voice::Lab, "in a browser:");
        println!("\n  {}/\n", world.console_url());
    }
    screen.say(Voice::Lab, "in another terminal:");
    println!(
        "\n  export PATH={dir}/bin:$PATH\n  vmadm list\n  vminfod events\n  vmadm stop UUID\n  \
         zfs set quota=37g zones/UUID\n  sdc-napi /nics/MAC\n  tail -f {dir}/vminfod.log",
    );
    for (part, name) in
        [(Part::NetAgent, "net-agent"), (Part::VmAgent, "vm-agent"), (Part::Kvmd, "kvmd")]
    {
        if !args.without.contains(&part) {
            println!("  {name} status");
        }
    }
    if world.has_migrations() {
        println!("  migration-agent status\n  sdc-migrate migrate {}", movable(world).await);
    }
    if args.with.contains(&Extra::Fleet) {
        println!("  sdc-fleet nodes\n  sdc-fleet watch");
    }
    if args.with.contains(&Extra::Volumes) {
        println!("  {}\n  sdc-voladm list-volume-zones", volumes::command());
    }
    println!("  svcadm restart vminfod\n  testbed break zfs --for 30s\n  testbed cure");
    println!();
}

/// A VM of the first node that runs, for a command that moves it.
async fn movable(world: &World) -> String {
    let all = match world.hub() {
        Ok(hub) => hub.vms(false).await.map(|view| view.vms).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let is_fit = |vm: &&VmObject| vm.state() == Some("running") && !vm.is_hidden();
    let fit = all.iter().find(is_fit).and_then(|vm| vm.uuid());
    fit.unwrap_or("UUID").to_owned()
}

fn pid(pid: Option<u32>) -> String {
    pid.map_or("-".to_owned(), |pid| pid.to_string())
}
