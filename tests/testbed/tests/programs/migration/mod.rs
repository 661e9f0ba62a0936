// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migration: two agents, one NAPI, one VMAPI, and every order of the operator's acts, the agents'
//! requests and the answers. The NIC survives in each order, and ends where the VM is; `vm_agents` has
//! the same for VMAPI's record.

mod explore;
mod independence;
mod nics;
mod records;
mod scripts;
mod vm_agents;
mod world;

use explore::{orders_of, the_reduction_comes_to_every_end_of};
use scripts::When::{self, New, Off, On};
use scripts::{Act, Script};
use world::Kind;

/// The source's agent starts with the migration, for the first time, and the target's so.
const TARGET_ON: [When; 2] = [New, On];
const TARGET_OFF: [When; 2] = [New, Off];

fn with_agents(
    name: &str,
    steps: &[Act],
    aborts: bool,
    held: &'static [usize],
    agents: &[[When; 2]],
) {
    for agents in agents.iter().copied() {
        orders_of(name, &Script { kind: Kind::Net, agents, steps: steps.to_vec(), aborts, held });
    }
}

fn with_the_targets_agent_off(steps: &[Act]) {
    for (aborts, held) in [(false, &[][..]), (true, &[0, 1][..])] {
        let (kind, agents, steps) = (Kind::Net, TARGET_OFF, steps.to_vec());
        the_reduction_comes_to_every_end_of(&Script { kind, agents, steps, aborts, held });
    }
}

#[test]
fn the_reduction_comes_to_every_end_of_the_first_two_steps() {
    with_the_targets_agent_off(&Script::shipped()[..2]);
}

// I13
#[test]
fn the_shipped_order_with_the_targets_agent_off() {
    with_agents("shipped", &Script::shipped(), false, &[], &[TARGET_OFF]);
}

#[test]
#[ignore = "half a minute of two processors: .ci/run runs it beside the orders of vm-agents"]
fn the_shipped_order_with_holds() {
    with_agents("shipped", &Script::shipped(), true, &[0, 1], &[TARGET_OFF, TARGET_ON]);
}

#[test]
fn a_hold_at_any_moment() {
    with_agents("held, then hidden", &[Act::Hold, Act::HideSource], false, &[], &[TARGET_OFF]);
}
