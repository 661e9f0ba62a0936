// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The same with vm-agents: each on, off, late, for the first time, or stopped while both copies are
//! hidden and started later. VMAPI never says that the VM is destroyed, and ends with the node that
//! has it.
//!
//! Not here: the source's agent restarted while the target's is off. If a PUT that the source sent
//! before it hid the VM arrives after the move, and the agent dies before it hears of the hiding, then
//! nothing that it can ask tells a VM that moved from one that was destroyed.

use super::explore::{orders_of, the_reduction_comes_to_every_end_of};
use super::scripts::Act::{self, *};
use super::scripts::Script;
use super::scripts::When::{self, Late, New, Off, On, Restarted};
use super::world::Kind;

/// The shipped order, from the stop of the source.
const SHIPPED: [Act; 5] = [StopSource, HideSource, Erase, ShowTarget, DeleteSource];
/// The same with a full PUT in place of the step that erases the record. What RFD 34 adds is done in
/// NAPI, which no vm-agent asks.
const RFD_34: [Act; 5] = [StopSource, HideSource, Replace, ShowTarget, DeleteSource];

fn script(steps: [Act; 5], agents: [When; 2], aborts: bool) -> Script {
    Script { kind: Kind::Vm, agents, steps: steps.to_vec(), aborts, held: &[] }
}

fn with_one_agent_late_or_restarted(name: &str, steps: [Act; 5], aborts: bool) {
    for agents in [[Late, On], [On, Late], [Restarted, On], [On, Restarted]] {
        orders_of(name, &script(steps, agents, aborts));
    }
}

#[test]
fn the_reduction_comes_to_every_end_with_vm_agents() {
    for agents in [[On, On], [Off, Restarted]] {
        the_reduction_comes_to_every_end_of(&script(SHIPPED, agents, false));
    }
}

#[test]
fn both_orders_with_vm_agents_on_and_off() {
    for (name, steps) in [("shipped", SHIPPED), ("RFD 34", RFD_34)] {
        for agents in [[On, On], [On, Off], [Off, On], [Off, Late], [Off, Restarted]] {
            orders_of(name, &script(steps, agents, false));
        }
    }
}

#[test]
fn the_shipped_order_with_one_vm_agent_late_or_restarted() {
    with_one_agent_late_or_restarted("shipped", SHIPPED, false);
}

#[test]
fn the_shipped_order_aborted_after_each_step_with_both_vm_agents_on() {
    orders_of("shipped", &script(SHIPPED, [On, On], true));
}

#[test]
#[ignore = "half a minute; .ci/run has it"]
fn rfd_34s_order_with_one_vm_agent_late_or_restarted() {
    with_one_agent_late_or_restarted("RFD 34", RFD_34, false);
}

#[test]
#[ignore = "half a minute; .ci/run has it"]
fn rfd_34s_order_aborted_after_each_step_with_both_vm_agents_on() {
    orders_of("RFD 34", &script(RFD_34, [On, On], true));
}

#[test]
#[ignore = "minutes"]
fn both_orders_with_one_vm_agent_new() {
    for (name, steps) in [("shipped", SHIPPED), ("RFD 34", RFD_34)] {
        for agents in [[New, On], [On, New]] {
            orders_of(name, &script(steps, agents, false));
        }
    }
}

#[test]
#[ignore = "minutes"]
fn both_orders_with_both_vm_agents_restarted() {
    for (name, steps) in [("shipped", SHIPPED), ("RFD 34", RFD_34)] {
        orders_of(name, &script(steps, [Restarted, Restarted], false));
    }
}

#[test]
#[ignore = "minutes"]
fn both_orders_aborted_after_each_step_with_one_vm_agent_restarted() {
    for (name, steps) in [("shipped", SHIPPED), ("RFD 34", RFD_34)] {
        for agents in [[Restarted, On], [On, Restarted]] {
            orders_of(name, &script(steps, agents, true));
        }
    }
}
