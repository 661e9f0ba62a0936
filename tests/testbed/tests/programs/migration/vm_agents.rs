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
use super::scripts::When::{self, Late, Off, On, Restarted};
use super::world::Kind;

/// The shipped order, from the stop of the source.
const SHIPPED: [Act; 5] = [StopSource, HideSource, Erase, ShowTarget, DeleteSource];
fn script(agents: [When; 2], aborts: bool) -> Script {
    Script { kind: Kind::Vm, agents, steps: SHIPPED.to_vec(), aborts, held: &[] }
}

#[test]
fn the_reduction_comes_to_every_end_with_vm_agents() {
    for agents in [[On, On], [Off, Restarted]] {
        the_reduction_comes_to_every_end_of(&script(agents, false));
    }
}

#[test]
fn the_shipped_order_with_vm_agents_on_and_off() {
    for agents in [[On, On], [On, Off], [Off, On], [Off, Late], [Off, Restarted]] {
        orders_of("shipped", &script(agents, false));
    }
}

#[test]
#[ignore = "minutes: .ci/run has the orders"]
fn the_shipped_order_with_one_vm_agent_late_or_restarted() {
    for agents in [[Late, On], [On, Late], [Restarted, On], [On, Restarted]] {
        orders_of("shipped", &script(agents, false));
    }
}

#[test]
#[ignore = "minutes: .ci/run has the orders"]
fn the_shipped_order_aborted_after_each_step_with_both_vm_agents_on() {
    orders_of("shipped", &script([On, On], true));
}
