// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migration: two agents, one NAPI, one VMAPI, and every order of the operator's acts, the agents'
//! requests and the answers. The NIC survives in each order, and ends where the VM is.

mod explore;
mod independence;
mod scripts;
mod world;

use explore::{Reduction, explore};
use scripts::TargetAgent::{self, Late, New, Off, On};
use scripts::{Act, Script};

fn orders_of(name: &str, script: &Script) {
    let began = tokio::time::Instant::now();
    let found = explore(script, Reduction::Commuting);
    println!(
        "{name}, target's agent {:?}, aborts {}, held on {:?}: orders of up to {} steps, {} states, \
         {} ends judged, {} runs, {:.1} s",
        script.target_agent,
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

fn with_agents(
    name: &str,
    steps: &[Act],
    aborts: bool,
    held: &'static [usize],
    agents: &[TargetAgent],
) {
    for target_agent in agents.iter().copied() {
        orders_of(name, &Script { steps: steps.to_vec(), target_agent, aborts, held });
    }
}

/// Compares with all orders, and with states that tell apart in which order tasks were answered.
fn the_reduction_comes_to_every_end_of(steps: &[Act]) {
    for (aborts, held) in [(false, &[][..]), (true, &[0, 1][..])] {
        let script = Script { steps: steps.to_vec(), target_agent: Off, aborts, held };
        let [all, some] = [Reduction::None, Reduction::Commuting].map(|r| explore(&script, r));
        assert_eq!(all.ends, some.ends);
        println!("{} runs stand for {}, {} ends", some.runs, all.runs, all.ends.len());
    }
}

#[test]
fn the_reduction_comes_to_every_end_of_the_first_two_steps() {
    the_reduction_comes_to_every_end_of(&Script::shipped()[..2]);
}

#[test]
#[ignore = "minutes: all orders, one by one; .ci/run has it"]
fn the_reduction_comes_to_every_end_of_the_shipped_order() {
    the_reduction_comes_to_every_end_of(&Script::shipped());
}

// I13
#[test]
fn the_shipped_order_with_the_targets_agent_off() {
    with_agents("shipped", &Script::shipped(), false, &[], &[Off]);
}

#[test]
#[ignore = "minutes: both agents' steps in every order"]
fn the_shipped_order() {
    with_agents("shipped", &Script::shipped(), false, &[], &[On, Late]);
}

#[test]
#[ignore = "minutes: both agents' first passes in every order with everything else"]
fn the_shipped_order_with_both_agents_new() {
    with_agents("shipped", &Script::shipped(), false, &[], &[New]);
}

#[test]
#[ignore = "minutes; with holds it is done each time"]
fn the_shipped_order_aborted_after_each_step() {
    with_agents("shipped", &Script::shipped(), true, &[], &[Off, On, Late]);
}

#[test]
fn the_shipped_order_with_holds() {
    with_agents("shipped", &Script::shipped(), true, &[0, 1], &[Off, On]);
}

#[test]
#[ignore = "minutes: held on one node only, the other's agent goes on"]
fn the_shipped_order_with_a_hold_on_one_node() {
    with_agents("shipped", &Script::shipped(), true, &[0, 1], &[Late]);
    with_agents("shipped", &Script::shipped(), false, &[0], &[On, Off, Late]);
    with_agents("shipped", &Script::shipped(), false, &[1], &[On, Off, Late]);
}

#[test]
fn rfd_34s_order_with_the_targets_agent_off() {
    with_agents("RFD 34", &Script::rfd34(), false, &[], &[Off]);
}

#[test]
#[ignore = "minutes"]
fn rfd_34s_order() {
    with_agents("RFD 34", &Script::rfd34(), false, &[], &[On, Late]);
}

#[test]
#[ignore = "minutes"]
fn rfd_34s_order_aborted_after_each_step() {
    with_agents("RFD 34", &Script::rfd34(), true, &[], &[On, Off, Late]);
}

#[test]
#[ignore = "minutes"]
fn rfd_34s_order_with_holds() {
    with_agents("RFD 34", &Script::rfd34(), true, &[0, 1], &[On, Off, Late]);
}
