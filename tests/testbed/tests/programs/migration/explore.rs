// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every order of the steps: the world is run again from its beginning for each prefix of choices.
//! None is left to chance, but three kinds are not run, because another that is run comes to the
//! same:
//!
//! * Orders that meet in one state go on together. Two states are the same when the services hold
//!   the same records, the nodes the same VMs, each agent knows the same, and each of its tasks has
//!   been answered the same in the same order and waits for the same; what they differ in is only
//!   the order in which that happened to different tasks, and the time it took.
//! * Where one party's steps commute with all that anybody else may still do, only that party's
//!   are gone into ([`independence::sufficient`]; persistent sets).
//! * Of two steps that commute, the second is not tried first where the first was (sleep sets: a
//!   step sleeps until something happens that it does not commute with). A state that is reached
//!   again with a step awake that slept before is gone into again for that step.
//!
//! Both reductions keep every end, and the order of agents' writes among each other and against
//! the operator's acts on the way to it; what is judged at every moment follows from these.
//! `Reduction::None` runs without them, to compare.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::independence::{self, Touch};
use super::scripts::{Position, Script};
use super::world::{Kind, World};
use super::{nics, records};

/// Longer than any wait of the agents that is not a pause between tries.
const QUIET: Duration = Duration::from_millis(150);

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The operator's next.
    Operator,
    /// The operator gives up and takes back what was done.
    Abort,
    /// One of the held requests of a node's agent.
    Ask(usize, usize),
    /// A node tells its agent one event.
    Tell(usize),
    /// A node's agent starts.
    Start(usize),
    /// A node's agent is stopped; what it asked is never answered.
    Stop(usize),
}

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Orders that another stands for.
    Commuting,
    /// Nothing but what was seen, where an agent's answers came in one order.
    None,
}

/// What an exploration came to.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// States that differ.
    pub states: usize,
    /// Ends that differ, each let run on and judged.
    pub ends: BTreeSet<u64>,
    /// Runs from the beginning.
    pub runs: usize,
    /// The longest order.
    pub longest: usize,
}

/// A step that need not be tried for now.
type Asleep = Vec<(Step, Touch)>;

/// An order to be tried: all its steps, and what sleeps after the last.
struct Order {
    steps: Vec<Step>,
    asleep: Asleep,
}

/// What is known of the states so far: by state, what slept at every visit.
struct Known {
    asleep: HashMap<u64, BTreeSet<Step>>,
    reduction: Reduction,
    todo: Vec<Order>,
    found: Found,
}

/// Explores all orders of one script and tells what came of it.
pub fn orders_of(name: &str, script: &Script) {
    let began = tokio::time::Instant::now();
    let found = explore(script, Reduction::Commuting);
    println!(
        "{name}, agents {:?}, aborts {}, held on {:?}: orders of up to {} steps, {} states, \
         {} ends judged, {} runs, {:.1} s",
        script.agents,
        script.aborts,
        script.held,
        found.longest,
        found.states,
        found.ends.len(),
        found.runs,
        began.elapsed().as_secs_f64()
    );
    assert!(found.runs > 1 && !found.ends.is_empty());
}

/// Compares with all orders, and with states that tell apart in which order tasks were answered.
pub fn the_reduction_comes_to_every_end_of(script: &Script) {
    let [all, some] = [Reduction::None, Reduction::Commuting].map(|r| explore(script, r));
    assert_eq!(all.ends, some.ends);
    println!("{} runs stand for {}, {} ends", some.runs, all.runs, all.ends.len());
}

/// Explores all orders of one script.
fn explore(script: &Script, reduction: Reduction) -> Found {
    let first = Order { steps: Vec::new(), asleep: Asleep::new() };
    let (asleep, found) = (HashMap::new(), Found::default());
    let mut known = Known { asleep, reduction, todo: vec![first], found };
    while let Some(order) = known.todo.pop() {
        known.found.runs += 1;
        if known.found.runs.is_multiple_of(10_000) {
            println!(
                "… {} runs, {} states, {} to go into",
                known.found.runs,
                known.found.states,
                known.todo.len()
            );
        }
        run(script, order, &mut known);
    }
    known.found
}

impl Known {
    /// A state was reached by these steps: what is to be tried from it that was not yet, the
    /// first of it by this very run.
    fn reached(
        &mut self,
        key: u64,
        able: &[(Step, Touch)],
        order: &Order,
    ) -> Option<(Step, Asleep)> {
        let now: BTreeSet<Step> = order.asleep.iter().map(|(step, _)| *step).collect();
        let fresh: Vec<(Step, Touch)> = match self.asleep.get_mut(&key) {
            None => {
                self.found.states += 1;
                self.found.longest = self.found.longest.max(order.steps.len());
                if able.is_empty() {
                    self.found.ends.insert(key);
                }
                self.asleep.insert(key, now.clone());
                able.iter().copied().filter(|(step, _)| !now.contains(step)).collect()
            }
            Some(before) => {
                let awake = |step: &Step| before.contains(step) && !now.contains(step);
                let fresh = able.iter().copied().filter(|(step, _)| awake(step)).collect();
                before.retain(|step| now.contains(step));
                fresh
            }
        };
        let mut asleep = order.asleep.clone();
        let mut first = None;
        for (step, touch) in fresh {
            let stays = |other: &&(Step, Touch)| other.1.commutes(touch);
            let after: Asleep = match self.reduction {
                Reduction::Commuting => asleep.iter().filter(stays).copied().collect(),
                Reduction::None => Asleep::new(),
            };
            asleep.push((step, touch));
            if first.is_none() {
                first = Some((step, after));
            } else {
                let steps = [order.steps.clone(), vec![step]].concat();
                self.todo.push(Order { steps, asleep: after });
            }
        }
        first
    }
}

/// Runs an order from the beginning, and on by first choices for as long as they are news.
fn run(script: &Script, mut order: Order, known: &mut Known) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let world = World::new(script.kind);
    runtime.block_on(async {
        script.before(&world).await;
        let mut at = Position::default();
        let mut told: Vec<String> = Vec::new();
        let given = order.steps.clone();
        for n in 0.. {
            tokio::time::sleep(QUIET).await;
            world.rest();
            let step = match given.get(n) {
                Some(step) => *step,
                None => {
                    let all = enabled(script, &world, at);
                    let able = match known.reduction {
                        Reduction::Commuting => independence::sufficient(&all, script, &world, at),
                        Reduction::None => all,
                    };
                    let touch = |step| (step, independence::of(step, script, &world, at));
                    let able: Vec<_> = able.into_iter().map(touch).collect();
                    match script.kind {
                        Kind::Net => nics::always(script, &world, &told),
                        Kind::Vm => records::always(&world, &told),
                    }
                    let (key, seen) =
                        (world.key(at, known.reduction == Reduction::None), known.found.states);
                    match known.reached(key, &able, &order) {
                        Some((step, asleep)) => {
                            order.steps.push(step);
                            order.asleep = asleep;
                            step
                        }
                        None => {
                            if able.is_empty() && known.found.states > seen {
                                match script.kind {
                                    Kind::Net => nics::after(script, &world, &told).await,
                                    Kind::Vm => records::after(script, &world, at, &told).await,
                                }
                            }
                            return;
                        }
                    }
                }
            };
            told.push(take(script, &world, step, &mut at));
            assert!(n < 200, "it never ends: {told:#?}");
        }
    });
    // The world has the agents, whose wires have the world: neither would ever go by itself.
    (0..2).for_each(|node| world.stop(node));
}

/// What may happen next. An agent that asks nothing does nothing until it is told something, and
/// being told changes nothing but itself: that step commutes with every other but its stop, and is
/// taken first.
fn enabled(script: &Script, world: &World, at: Position) -> Vec<Step> {
    let mut steps = Vec::new();
    let idle = |node: &usize| {
        let is_idle = world.held()[*node] == 0 && world.untold(*node);
        is_idle && !script.may_still_stop(*node, world)
    };
    if let Some(node) = (0..2).find(idle) {
        return vec![Step::Tell(node)];
    }
    for (node, held) in world.held().into_iter().enumerate() {
        steps.extend((0..held).map(|which| Step::Ask(node, which)));
    }
    steps.extend((0..2).filter(|node| world.untold(*node)).map(Step::Tell));
    if script.next(at).is_some() {
        steps.push(Step::Operator);
    }
    if script.may_abort(at) {
        steps.push(Step::Abort);
    }
    steps.extend((0..2).filter(|node| script.may_start(*node, world)).map(Step::Start));
    if world.both_hidden() {
        let may_stop = |node: &usize| script.may_still_stop(*node, world);
        steps.extend((0..2).filter(may_stop).map(Step::Stop));
    }
    steps
}

fn take(script: &Script, world: &World, step: Step, at: &mut Position) -> String {
    match step {
        Step::Operator => {
            let what = script.next(*at).expect("there is a next step");
            what.take(world);
            match &mut at.back {
                Some(back) => *back += 1,
                None => at.done += 1,
            }
            format!("operator: {what:?}")
        }
        Step::Abort => {
            at.back = Some(0);
            "operator: aborts".to_owned()
        }
        Step::Ask(node, which) => {
            let what = world.let_through(node, which);
            format!("agent {node}: {what}")
        }
        Step::Tell(node) => {
            world.tell_one(node);
            format!("agent {node} hears an event")
        }
        Step::Start(node) => {
            world.start(node);
            format!("agent {node} starts")
        }
        Step::Stop(node) => {
            world.stop(node);
            format!("agent {node} is stopped")
        }
    }
}
