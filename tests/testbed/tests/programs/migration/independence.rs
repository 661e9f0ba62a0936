// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which steps commute, so that only one of their orders has to be run. Two steps commute when
//! neither writes what the other reads or writes; what a step touches follows from what it is (an
//! operator's act, a request by its method and path, an event told), never from what it led to.
//!
//! It must never call two steps independent that a property can tell apart: the order of agents'
//! writes and operator's acts is one of the things judged, so a write counts as reading how far
//! the operator is.

use super::explore::Step;
use super::scripts::{Act, Position, Script};
use super::world::{Kind, OTHER, OTHER_MAC, World};

/// Sets of what can be touched.
type Set = u16;
const NODE: [Set; 2] = [1, 2];
const AGENT: [Set; 2] = [4, 8];
const VMAPI: Set = 16;
/// The NIC's record and the lists that show it.
const ROW: Set = 32;
/// How far the operator is.
const OPERATOR: Set = 128;
/// The holds, at which an agent may look whenever it goes on.
const HOLDS: Set = 256;

/// What a step touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    reads: Set,
    writes: Set,
}

impl Touch {
    /// Returns true if the two steps commute.
    pub fn commutes(self, other: Self) -> bool {
        self.writes & (other.reads | other.writes) == 0 && other.writes & self.reads == 0
    }

    fn and(self, other: Self) -> Self {
        Self { reads: self.reads | other.reads, writes: self.writes | other.writes }
    }
}

fn of_act(act: Act) -> Touch {
    let what = match act {
        Act::Hold => HOLDS,
        Act::StopSource | Act::StartSource => NODE[0],
        Act::HideSource | Act::ShowSource | Act::DeleteSource => NODE[0],
        Act::ShowTarget | Act::HideTarget => NODE[1],
        Act::Erase | Act::EraseBack => VMAPI,
    };
    Touch { reads: 0, writes: what | OPERATOR }
}

fn of_request(node: usize, label: &str) -> Touch {
    let mut words = label.split(' ');
    let (method, host) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let own =
        [format!("/nics/{}", OTHER_MAC[node].replace(':', "")), format!("/vms/{}", OTHER[node])];
    let agent = Touch { reads: HOLDS, writes: AGENT[node] };
    agent.and(match host {
        // Another VM's record, which only this agent ever touches: what is judged at every moment
        // sees to it.
        "napi.lab" | "vmapi.lab"
            if words.next().is_some_and(|it| own.iter().any(|own| own == it)) =>
        {
            Touch::default()
        }
        "vmapi.lab" if method == "GET" => Touch { reads: VMAPI, writes: 0 },
        "vmapi.lab" => Touch { reads: OPERATOR, writes: VMAPI },
        "napi.lab" if method == "GET" => Touch { reads: ROW, writes: 0 },
        "napi.lab" => Touch { reads: OPERATOR, writes: ROW },
        _ => Touch { reads: NODE[node], writes: 0 },
    })
}

/// What a step that can be taken now touches.
pub fn of(step: Step, script: &Script, world: &World, at: Position) -> Touch {
    match step {
        Step::Operator => script.next(at).map(of_act).unwrap_or_default(),
        Step::Abort => Touch { reads: 0, writes: OPERATOR },
        Step::Ask(node, which) => of_request(node, &world.labels(node)[which]),
        // It takes the first event away; an act on the node adds a last one. Both commute.
        Step::Tell(node) => Touch { reads: HOLDS, writes: AGENT[node] },
        Step::Start(node) => Touch { reads: NODE[node] | HOLDS, writes: AGENT[node] },
        // It may be taken in a part of the operator's way only.
        Step::Stop(node) => Touch { reads: OPERATOR, writes: AGENT[node] },
    }
}

/// The smallest share of `steps` that has to be gone into from here: the steps of one party, if
/// whatever the others may ever do commutes with each of them. All, if there is no such party.
///
/// That is enough to come to every end: take any order of steps to an end. The first step in it of
/// that party is one of these, and all before it commutes with it; so the order that begins with
/// it leads to the same end, and with the same writes in the same order against the operator's acts.
pub fn sufficient(steps: &[Step], script: &Script, world: &World, at: Position) -> Vec<Step> {
    let operators = script.may_still_do(at);
    let acts = |set: Set| operators.iter().any(|act| of_act(*act).writes & set != 0);
    let operator = operators.iter().map(|act| of_act(*act)).fold(Touch::default(), Touch::and);
    let agent = |node: usize| {
        let awake = world.held()[node] > 0 || world.untold(node) || acts(NODE[node]);
        let to_start = script.may_start(node, world) || script.may_still_stop(node, world);
        let may_act = to_start || (world.runs(node) && awake);
        if !may_act {
            return Touch::default();
        }
        let reads = Touch { reads: NODE[node] | VMAPI | ROW | HOLDS, writes: AGENT[node] };
        let writes =
            Touch { reads: OPERATOR, writes: if script.kind == Kind::Net { ROW } else { VMAPI } };
        if script.held.contains(&node) { reads } else { reads.and(writes) }
    };
    let party = |step: &Step| match step {
        Step::Operator | Step::Abort => 2,
        Step::Ask(node, _) | Step::Tell(node) | Step::Start(node) | Step::Stop(node) => *node,
    };
    let mut best = steps.to_vec();
    for who in [0, 1, 2] {
        let own: Vec<Step> = steps.iter().copied().filter(|step| party(step) == who).collect();
        let others = match who {
            2 => agent(0).and(agent(1)),
            node => agent(1 - node).and(operator),
        };
        // An act on its node would give it something to be told, which does not commute.
        let news = who < 2 && acts(NODE[who]) && !own.contains(&Step::Tell(who));
        // So would an act that makes the window in which it may be stopped.
        let stop = who < 2 && script.may_still_stop(who, world) && !own.contains(&Step::Stop(who));
        let news = news || (stop && !operators.is_empty());
        let alone = own.iter().all(|step| of(*step, script, world, at).commutes(others));
        if !own.is_empty() && !news && alone && own.len() < best.len() {
            best = own;
        }
    }
    best
}
