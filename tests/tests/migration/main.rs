// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migration: two agents, one NAPI, one VMAPI, and every order of what the operator does, what the
//! agents ask and what they are told. The NIC survives in each, and ends where the VM is.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test; clippy sees tests only in #[test] itself.

mod explore;
mod scripts;
mod world;

use scripts::{Act, Script, TargetAgent};

fn orders_of(name: &str, script: &Script) {
    let began = tokio::time::Instant::now();
    let found = explore::explore(script);
    println!(
        "{name}, target's agent {:?}, aborts {}, held on {:?}: {} orders of up to {} steps, {} states, \
         {} ends judged, {} runs, {:.1} s",
        script.target_agent,
        script.aborts,
        script.held,
        found.orders,
        found.longest,
        found.states,
        found.ends,
        found.runs,
        began.elapsed().as_secs_f64()
    );
    assert!(found.orders > 1 && found.ends > 0);
}

fn each_agent(name: &str, steps: &[Act], aborts: bool, held: &'static [usize]) {
    for target_agent in [TargetAgent::On, TargetAgent::Off, TargetAgent::Late] {
        orders_of(name, &Script { steps: steps.to_vec(), target_agent, aborts, held });
    }
}

#[test]
fn the_shipped_order() {
    each_agent("shipped", &Script::shipped(), false, &[]);
}

#[test]
#[ignore = "minutes: both agents' first passes in every order with everything else"]
fn the_shipped_order_with_both_agents_new() {
    let steps = Script::shipped();
    let script = Script { steps, target_agent: TargetAgent::New, aborts: false, held: &[] };
    orders_of("shipped", &script);
}

#[test]
fn the_shipped_order_aborted_after_each_step() {
    let steps = Script::shipped();
    let script = Script { steps, target_agent: TargetAgent::Off, aborts: true, held: &[] };
    orders_of("shipped", &script);
}

#[test]
#[ignore = "minutes"]
fn the_shipped_order_aborted_after_each_step_with_each_agent() {
    each_agent("shipped", &Script::shipped(), true, &[]);
}

#[test]
fn the_shipped_order_with_holds() {
    each_agent("shipped", &Script::shipped(), true, &[0, 1]);
    each_agent("shipped", &Script::shipped(), false, &[0]);
    each_agent("shipped", &Script::shipped(), false, &[1]);
}

#[test]
fn rfd_34s_order() {
    each_agent("RFD 34", &Script::rfd34(), false, &[]);
}

#[test]
#[ignore = "minutes; with holds it is done each time"]
fn rfd_34s_order_aborted_after_each_step() {
    each_agent("RFD 34", &Script::rfd34(), true, &[]);
}

#[test]
fn rfd_34s_order_with_holds() {
    each_agent("RFD 34", &Script::rfd34(), true, &[0, 1]);
}
