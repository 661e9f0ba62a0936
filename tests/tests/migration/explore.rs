// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every order of the steps: the world is run again from its beginning for each prefix of choices,
//! and a state that was seen before is not gone into twice. Two states are the same when the
//! services hold the same records, the nodes the same VMs, and each agent has been answered and
//! told the same things in the same order and waits for the same; what they differ in is only
//! the order in which that happened, and the time it took.

use std::collections::HashMap;
use std::time::Duration;

use super::scripts::{Position, Script, TargetAgent};
use super::world::World;

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
    /// The target's agent starts (where it is late).
    Start,
}

/// What an exploration came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Different orders of all steps.
    pub orders: u128,
    /// States that differ.
    pub states: usize,
    /// Ends that differ, each let run on and judged.
    pub ends: usize,
    /// Runs from the beginning.
    pub runs: usize,
    /// The longest order.
    pub longest: usize,
}

#[derive(Clone, Debug, Default)]
struct State {
    steps: Vec<Step>,
    next: Vec<u64>,
}

/// Explores all orders of one script.
pub fn explore(script: &Script) -> Found {
    let mut states: HashMap<u64, State> = HashMap::new();
    let mut found = Found::default();
    let mut todo: Vec<(u64, Vec<Step>)> = vec![(0, Vec::new())];
    let mut root = None;
    while let Some((from, prefix)) = todo.pop() {
        found.runs += 1;
        let path = run(script, &prefix, &|key| states.contains_key(&key));
        // The path's first state is where the prefix leads; after it first choices were taken.
        let mut before: Option<(u64, Step)> = prefix.last().map(|step| (from, *step));
        let mut reached = prefix.clone();
        for (n, (key, steps, taken)) in path.iter().enumerate() {
            if root.is_none() {
                root = Some(*key);
            }
            if let Some((from, step)) = before
                && let Some(from) = states.get_mut(&from)
                && let Some(at) = from.steps.iter().position(|s| *s == step)
            {
                from.next[at] = *key;
            }
            let known = states.contains_key(key);
            if !known {
                let state = State { steps: steps.clone(), next: vec![0; steps.len()] };
                for step in steps.iter().skip(1) {
                    todo.push((*key, [reached.clone(), vec![*step]].concat()));
                }
                found.ends += usize::from(steps.is_empty());
                found.longest = found.longest.max(reached.len());
                states.insert(*key, state);
            }
            match taken {
                Some(step) if n + 1 < path.len() => {
                    reached.push(*step);
                    before = Some((*key, *step));
                }
                _ => break,
            }
        }
    }
    found.states = states.len();
    found.orders = orders(&states, root.expect("there is a first state"));
    found
}

/// How many ways lead from a state to an end.
fn orders(states: &HashMap<u64, State>, root: u64) -> u128 {
    fn count(states: &HashMap<u64, State>, key: u64, known: &mut HashMap<u64, u128>) -> u128 {
        if let Some(count) = known.get(&key) {
            return *count;
        }
        let state = &states[&key];
        // A state being counted counts nothing: a circle would be no order of steps.
        known.insert(key, 0);
        let sum = if state.steps.is_empty() {
            1
        } else {
            state.next.iter().map(|next| count(states, *next, known)).sum()
        };
        known.insert(key, sum);
        sum
    }
    count(states, root, &mut HashMap::new())
}

/// From a prefix's end on: state, what could be done, what was.
type Path = Vec<(u64, Vec<Step>, Option<Step>)>;

fn run(script: &Script, prefix: &[Step], known: &dyn Fn(u64) -> bool) -> Path {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = World::new(script.min_age());
        script.before(&world).await;
        let mut at = Position::default();
        let mut path = Path::new();
        let mut told: Vec<String> = Vec::new();
        for n in 0.. {
            tokio::time::sleep(QUIET).await;
            world.rest();
            let step = match prefix.get(n) {
                Some(step) => *step,
                None => {
                    let steps = enabled(script, &world, at);
                    let key = world.key(at);
                    script.always(&world, at, &told);
                    let first = steps.first().copied();
                    path.push((key, steps, first));
                    match first {
                        _ if known(key) => break,
                        Some(step) => step,
                        None => {
                            script.after(&world, at, &told).await;
                            break;
                        }
                    }
                }
            };
            told.push(take(script, &world, step, &mut at));
            assert!(n < 200, "it never ends: {told:#?}");
        }
        path
    })
}

/// What may happen next. An agent that asks nothing does nothing until it is told something, and
/// being told changes nothing but itself: that step commutes with every other, and is taken first.
fn enabled(script: &Script, world: &World, at: Position) -> Vec<Step> {
    let mut steps = Vec::new();
    let idle = |node: &usize| world.held()[*node] == 0 && world.untold(*node);
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
    if script.target_agent == TargetAgent::Late && !world.runs(1) {
        steps.push(Step::Start);
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
        Step::Start => {
            world.start(1);
            "the target's agent starts".to_owned()
        }
    }
}
