// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed migrate-explore`: whole migrations in one process, on a simulated clock. migration-service, both
//! migration-agents, both vminfods, both net-agents and vm-agents are the real ones, the nodes, NAPI, VMAPI and CNAPI
//! are simulated. Parties die, stop or lose what is said before and after each store write, each request and each
//! command that changes a node, and nodes reboot there. `moving` holds P13 at every step and P14 at the end.
//! The same world also stands on real ZFS and in real time (`disk`), for a test and for `testbed bench migrate`.

pub mod cases; // all runs with one fault, and pairs

pub mod table; // what each fault means in each phase

pub mod runs; // one run

pub mod costs; // what failed switches cost

mod story; // what an operator does

pub mod world; // the data centre

pub mod among; // nodes and the service, among services that somebody else plays

mod service; // an instance of migration-service

pub mod cn; // a node with all that runs on it

pub mod data; // connections for data

mod forger; // changes streams, for deliberate bugs

pub mod net; // requests and the store

mod programs; // the programs of a node as its migration-agent runs them

pub mod disk; // real ZFS instead of the simulated node's

pub mod names; // the nodes, the secret

mod vault; // the services' database

pub mod bugs; // deliberate bugs

pub mod points; // where something can go wrong, and what

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use tokio::time::Instant;

use self::bugs::{BUGS, Bug};
use self::cases::{failing, pair, single};
use self::costs::{Costs, Peers};
use self::points::{Fault, Moment, Party, Planned};
use self::runs::{Case, Ran, run as run_case};
use self::world::Shape;
use crate::moving::operator::{STORIES, Story};
use crate::parallel::{failed_in_parallel, in_parallel};

/// Beside so many points one more step of a switch fails for as long as it takes.
const SWITCHES: usize = 10;

#[derive(Debug, Parser)]
#[command(name = "testbed migrate-explore", about = "Whole migrations under every fault")]
struct Args {
    /// At most so many of the runs with one fault
    #[arg(long)]
    points: Option<usize>,
    /// Without so many of the first: all in several sittings
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Then so many seeds with two faults each
    #[arg(long, default_value_t = 0)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Begin no run after so many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// net-agent and vm-agent run on both nodes
    #[arg(long)]
    agents: bool,
    /// Which deliberate bugs are noticed
    #[arg(long)]
    bugs: bool,
    /// Print what each fault means in each phase
    #[arg(long)]
    table: bool,
    /// Only the runs of which all of this would be told if they failed, such as `SourceDead, After 127`
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Tell what happens in runs that fail
    #[arg(long)]
    verbose: bool,
}

/// The command `migrate-explore`.
pub fn run(args: &[OsString]) -> ExitCode {
    let args = match crate::arguments::parse::<Args>("testbed migrate-explore", args) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let done = match (args.bugs, args.table) {
        (true, _) => notice(),
        (_, true) => plain(Shape::default()).and_then(|plain| {
            print!("{}", table::table(&plain)?);
            Ok(0)
        }),
        _ => explore(&args),
    };
    match done {
        Ok(failed) => ExitCode::from(u8::from(failed > 0)),
        Err(error) => {
            println!("FAIL {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each story without faults; each has to hold.
pub fn plain(shape: Shape) -> anyhow::Result<Vec<(Story, Ran)>> {
    let mut stories = STORIES.to_vec();
    // What agents tell of a VM that somebody deletes is NAPI's and VMAPI's, and no migration's.
    stories.retain(|story| !shape.with_agents || *story != Story::Deleted);
    let all = in_parallel(&stories, &|story| {
        let ran = run_case(&Case { story: *story, planned: Vec::new(), shape })?;
        let faults = ran.faults.join("; ");
        anyhow::ensure!(
            ran.faults.is_empty(),
            "{story:?} without faults: {faults}\n{}",
            ran.notes.join("\n")
        );
        Ok((*story, ran))
    });
    all.into_iter().collect()
}

fn explore(args: &Args) -> anyhow::Result<u64> {
    let began = Instant::now();
    let shape = Shape { with_agents: args.agents, ..Shape::default() };
    let plain = plain(shape)?;
    let mut cases = single(&plain, shape);
    let all = cases.len();
    cases.drain(..args.skip.min(all));
    cases.truncate(args.points.unwrap_or(all));
    let switches = failing(&plain, shape);
    let some = switches.len().min(cases.len().div_ceil(SWITCHES));
    cases.extend(switches.into_iter().take(some));
    cases.extend((args.from..args.from + args.seeds).map(|seed| pair(seed, &plain, shape)));
    cases.retain(|case| args.only.iter().all(|text| named(case, &plain).contains(text)));
    let until = args.minutes.map(|minutes| began + Duration::from_secs(minutes * 60));
    let (ran, happened) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let costs = Mutex::new(Costs::default());
    let failed = failed_in_parallel(&cases, &|case| {
        if until.is_some_and(|until| Instant::now() > until) {
            return true;
        }
        ran.fetch_add(1, Ordering::Relaxed);
        let told = run_case(case)
            .unwrap_or_else(|error| Ran { faults: vec![format!("{error:#}")], ..Ran::default() });
        happened.fetch_add(told.happened, Ordering::Relaxed);
        let peers = Peers::of(case.story, &case.planned);
        costs.lock().unwrap_or_else(PoisonError::into_inner).add(peers, &told.failed_switches);
        if told.faults.is_empty() {
            return true;
        }
        println!("FAIL {}: {}", named(case, &plain), told.faults.join("; "));
        if args.verbose {
            println!("  {}", told.notes.join("\n  "));
        }
        false
    });
    let (ran, happened) = (ran.into_inner(), happened.into_inner());
    print!("{}", costs.into_inner().unwrap_or_else(PoisonError::into_inner));
    let seconds = began.elapsed().as_secs();
    println!(
        "{ran} runs of {all} with one fault, {some} with a switch that fails and {} with two, {happened} faults happened, \
         {failed} failed; {seconds} s",
        args.seeds
    );
    Ok(failed)
}

/// Returns what a run is called: its story, and its faults with what they hit.
fn named(case: &Case, plain: &[(Story, Ran)]) -> String {
    let labels = plain.iter().find(|(story, _)| *story == case.story).map(|(_, ran)| &ran.labels);
    let faults = case.planned.iter().map(|planned| {
        let label = labels.and_then(|labels| labels.get(planned.at)).map_or("", String::as_str);
        format!("{:?} {} ({label}): {}", planned.moment, planned.at, planned.fault)
    });
    let faults: Vec<String> = faults.collect();
    format!("{:?}, {}", case.story, faults.join(", then "))
}

/// Runs each deliberate bug until it is noticed; prints which run noticed it.
fn notice() -> anyhow::Result<u64> {
    let plain = plain(Shape::default())?;
    let mut missed = 0;
    for &(name, bug) in BUGS {
        let by = noticed(bug, &plain)?;
        missed += u64::from(by.is_none());
        println!("{name}: {}", by.unwrap_or_else(|| "NOT NOTICED".to_owned()));
    }
    Ok(missed)
}

/// The source's agent asks whether its copies were replaced.
fn asks(label: &str) -> bool {
    label.starts_with("source agent") && label.contains("/replaced?")
}

/// Returns the point at which the source that was cut off asks, before it stops its copy.
fn asks_when_back(ran: &Ran) -> Option<usize> {
    let from = *ran.marks.get(2)?;
    let stops = |label: &String| label.starts_with("source agent: vmadm");
    let stopped = from + ran.labels.iter().skip(from).position(stops)?;
    ran.labels[..stopped].iter().rposition(|label| asks(label))
}

/// Returns by what a bug was noticed.
pub fn noticed(bug: Bug, plain: &[(Story, Ran)]) -> anyhow::Result<Option<String>> {
    let shape = Shape { bug: Some(bug), ..Shape::default() };
    let of = |story: Story| plain.iter().find(|(it, _)| *it == story).map(|(_, ran)| ran);
    // A fault at the first point of a command and those that follow which has such a label.
    let at = |story: Story, from: usize, is_it: &dyn Fn(&str) -> bool, fault: Fault| {
        let ran = of(story)?;
        let from = ran.marks.get(from).copied()?;
        let at = ran.labels.iter().skip(from).position(|label| is_it(label))?;
        let planned = vec![Planned { at: from + at, moment: Moment::Before, fault }];
        Some(vec![Case { story, planned, shape }])
    };
    let alone = |story: Story| Some(vec![Case { story, planned: Vec::new(), shape }]);
    let cases = match bug {
        // The first one stops in the middle of a switch.
        Bug::LeaseIgnored => of(Story::Finalize).and_then(|ran| {
            let at = (ran.marks.get(2)? + ran.marks.get(3)?) / 2;
            let fault = Fault::Stops(Party::Service(1));
            let planned = vec![Planned { at, moment: Moment::Before, fault }];
            Some(vec![Case { story: Story::Finalize, planned, shape }])
        }),
        Bug::NobodyWatches => alone(Story::CutOff),
        Bug::ManifestNotImported => alone(Story::SourceDead),
        Bug::ErrorIsDeath => alone(Story::Unwell),
        Bug::HeartbeatIgnored => alone(Story::Hasty),
        Bug::GoneIsThere => alone(Story::Deleted),
        // The store is lost just before the node that was declared dead asks, at its boot or when it is back.
        Bug::EmptyStoreAnswers => at(Story::SourceDead, 2, &asks, Fault::Empty),
        Bug::InsteadForgotten => of(Story::CutOff).and_then(|ran| {
            let (at, fault) = (asks_when_back(ran)?, Fault::Empty);
            let planned = vec![Planned { at, moment: Moment::Before, fault }];
            Some(vec![Case { story: Story::CutOff, planned, shape }])
        }),
        Bug::OldOrderObeyed => {
            let boots = |label: &str| label.ends_with("agent-target/orders boot");
            at(Story::Rollback, 0, &boots, Fault::Late)
        }
        Bug::BootsLate => {
            at(Story::Finalize, 2, &|label| label.contains("PUT vmapi.sim"), Fault::Lasts)
        }
        _ => Some(STORIES.map(|story| Case { story, planned: Vec::new(), shape }).to_vec()),
    };
    let cases = cases.ok_or_else(|| anyhow::anyhow!("{}: there is no such point", bug.name()))?;
    for case in cases {
        let ran = run_case(&case)?;
        if let Some(first) = ran.faults.first() {
            return Ok(Some(format!("{:?}: {first}", case.story)));
        }
    }
    Ok(None)
}
