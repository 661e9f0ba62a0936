// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed sim`: one seed is one world of nodes, agents, NAPI and VMAPI in one process, on a
//! simulated clock. The agents and vminfod are the real ones; the world around them loses, repeats,
//! delays, fails, hangs and crashes. The visible promises are checked after every step, and at the
//! end everything has to agree and be silent.
//!
//! Where each promise is checked:
//!
//! | promises | by |
//! |---|---|
//! | I1 I2 I3 I4 I5 I6 I7 I9 I10 I12 | [`judge`] and [`outside`], at each write, against the true state |
//! | I8 V9 | [`gate`], at each request and event of an agent |
//! | M2 M3 M4 M5 | [`record_judge`], at each request of a vm-agent, against the true state |
//! | V1 V2 V3 V4 V6 V8 V11 | [`watch`], at each line and each read |
//! | V5 V12 | [`watch`], after each step (V5: where no command is about to lie) |
//! | V7 I11 M1 V13 | [`settle`] and [`node`], at the end; V10 as the number of tasks alive |
//! | V15 | [`node`], at each start of vminfod |
//!
//! Held elsewhere: V10 in bytes, since worlds share one heap
//! (`stalled_listener_uses_bounded_memory_and_delays_nobody`, vminfod/tests/all/http.rs, and
//! `testbed soak`); V14 against recordings of upstream
//! (`testbed conform`, vminfod/tests/golden); I13 where two nodes have one VM, in every order of a
//! migration's steps (tests/programs/migration).

pub mod catch; // which seed notices each deliberate bug

pub mod equivalence; // one life, delivered in several ways

pub mod points; // every point at which an agent can die

pub mod both; // two machines of one uuid

pub mod witnesses; // each witness of a zone wrong, one and two at a time

pub mod runs; // worlds on clocks of their own, several at a time

pub mod settle; // the end of a world

pub mod checks; // everything agrees with the truth

pub mod world; // what the nodes share, the nodes, and who listens to each

pub mod steps; // random steps

mod moves; // VMs that move

mod boots; // a node loses its power and boots

mod told; // what its agents are told that is not so

mod twins; // a second machine with the uuid of a node

mod lies; // a node that shows less than it has

pub mod watch; // listeners and readers, who hold the stream to its promises

pub mod changes; // change records make the new object of the old one

pub mod node; // a node with its vminfod and its agents

pub mod seat; // where one agent runs, and its deaths

mod gated; // an agent's transport through the gate

pub mod gate; // what an agent gets to see, and where it dies

pub mod records; // VMAPI as a vm-agent reaches it

pub mod record_judge; // whether a write to VMAPI was allowed

pub mod outside; // NAPI and VMAPI as a net-agent reaches them

pub mod judge; // whether a write to NAPI was allowed

mod cnapi; // CNAPI as agents reach it

mod hub; // who answers in vminfod's place

mod sight; // the node as its vm-agent sees it

pub mod wire; // the vminfod of a node as an agent reaches it

pub mod centre; // what the nodes share

pub mod commands; // the commands of a node, slow and failing

pub mod signals; // sysevents and file events on their way

pub mod dice; // chance

pub mod truth; // the true state, and the promises that were broken

pub mod bugs; // deliberate bugs

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;

use clap::Parser;

use self::bugs::Bug;
use self::runs::one;
use crate::parallel::{failed_in_parallel, in_parallel};

/// Returns the seeds that failed once.
pub fn regressions() -> Vec<u64> {
    let lines = include_str!("regressions.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[derive(Debug, Parser)]
#[command(name = "testbed sim", about = "The whole system under a seeded world")]
struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run the seeds that failed once, too
    #[arg(long, conflicts_with_all = ["seed", "bugs", "crash_points"])]
    regressions: bool,
    /// Replay this one, with what happened in it
    #[arg(long)]
    seed: Option<u64>,
    /// Put a deliberate bug in; every seed that notices it counts as failed
    #[arg(long)]
    bug: Option<Bug>,
    /// Put every deliberate bug in, one after the other, and tell which seed notices it first
    #[arg(long, conflicts_with_all = ["bug", "seed", "crash_points", "equivalence"])]
    bugs: bool,
    /// One scripted history, with the agent's death, a stale answer and an unseen state at each
    /// of its requests and events in turn
    #[arg(long, conflicts_with_all = ["bug", "seed", "equivalence"])]
    crash_points: bool,
    /// Of these points, every n-th only
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// The same life delivered whole, late, shuffled and thinned has to end the same
    #[arg(long, conflicts_with = "bug")]
    equivalence: bool,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: Args = match crate::arguments::parse("testbed sim", args) {
        Ok(args) => args,
        Err(status) => return status,
    };
    if args.crash_points {
        return points::run(args.every);
    }
    if args.bugs {
        return catch::run(args.from, args.seeds);
    }
    let mut seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => (args.from..args.from.saturating_add(args.seeds)).collect(),
    };
    if args.regressions {
        seeds.extend(regressions());
    }
    let failed = match args.equivalence {
        true => failed_in_parallel(&seeds, &|seed| match equivalence::one(*seed) {
            Ok(()) => true,
            Err(error) => {
                println!("FAIL testbed sim --equivalence --seed {seed}: {error:#}");
                false
            }
        }),
        false => {
            let ran = run_seeds(&seeds, args.bug, args.seed.is_some());
            println!("what happened: {:016x}", ran.digest);
            ran.failed
        }
    };
    println!("{} passed, {} failed", seeds.len() as u64 - failed, failed);
    ExitCode::from(u8::from(failed > 0))
}

/// What came of some seeds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// How many failed.
    pub failed: u64,
    /// A digest of all that happened in them: the same for the same seeds, however busy the machine is.
    pub digest: u64,
}

/// Runs these seeds, several at a time; prints a line for each that fails.
pub fn run_seeds(seeds: &[u64], bug: Option<Bug>, tell: bool) -> Ran {
    let ran = in_parallel(seeds, &|seed| {
        let (result, trace) = one(*seed, bug);
        let mut hasher = DefaultHasher::new();
        (seed, &trace).hash(&mut hasher);
        if tell {
            trace.iter().for_each(|line| println!("  {line}"));
        }
        if let Err(error) = &result {
            let bug = bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
            println!("FAIL testbed sim --seed {seed}{bug}: {error:#}");
        }
        Ran { failed: u64::from(result.is_err()), digest: hasher.finish() }
    });
    let both = |a: Ran, b: Ran| Ran { failed: a.failed + b.failed, digest: a.digest ^ b.digest };
    ran.into_iter().reduce(both).unwrap_or_default()
}
