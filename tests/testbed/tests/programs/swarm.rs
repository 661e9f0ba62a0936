// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A small swarm on a simulated clock; `testbed swarm` runs large ones.

use std::time::Duration;

use mocks::napi::Era;
use testbed::clock::paused;
use testbed::swarm::{self, Check, Counts, Kind, Overload, Run, Shape, Start, With};

fn small(era: Era, capacity: f64, overload: Overload, seed: u64) -> (Run, Counts) {
    let shape = Shape { vms: 2, links: 2 };
    swarm_of(Start { agents: 200, shape, era, with: With::NetAgent }, capacity, overload, seed)
}

fn swarm_of(start: Start, capacity: f64, overload: Overload, seed: u64) -> (Run, Counts) {
    let run = Run { start, seed, capacity, overload, after: Duration::from_secs(1800) };
    let counts = paused().unwrap().block_on(swarm::simulate(&run)).unwrap();
    (run, counts)
}

fn kept(run: &Run, counts: &Counts) {
    let checks = run.start.checks(run.capacity, counts);
    let missed: Vec<&Check> = checks.iter().filter(|check| !check.kept()).collect();
    assert!(missed.is_empty(), "{}: {missed:?}", run.title());
}

#[test]
fn a_small_swarm_keeps_every_promise_and_its_seed_gives_it_again() {
    let (run, counts) = small(Era::Rfd58, 20.0, Overload::Drops, 1);
    kept(&run, &counts);
    assert_eq!(counts.total(), 800, "two own NICs, their list and one list each, and nothing else");
    assert_eq!((counts.of(Kind::Write), counts.given_up), (0, 0));
    assert_eq!(counts.of(Kind::Vmapi), 200, "one list of destroyed and failed VMs each");
    let (_, again) = small(Era::Rfd58, 20.0, Overload::Drops, 1);
    assert_eq!(again.arrived, counts.arrived);
    let (_, other) = small(Era::Rfd58, 20.0, Overload::Drops, 2);
    assert_ne!(other.arrived, counts.arrived);
}

#[test]
fn a_small_swarm_costs_a_napi_without_the_route_two_more_requests_each() {
    let (_, counts) = small(Era::Master, 20.0, Overload::Drops, 1);
    assert_eq!((counts.total(), counts.of(Kind::Probe)), (1200, 400));
}

#[test]
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
fn a_small_swarm_neither_drowns_a_slow_napi_nor_waits_for_ever() {
    // 70 % of what the start needs at its peak, and 30 %; then 70 % of what it needs on average,
    // and what 15 req/s are to ten thousand.
    for (capacity, overload) in [
        (4.7, Overload::Drops),
        (2.0, Overload::Drops),
        (0.7, Overload::Drops),
        (0.3, Overload::Drops),
        (4.7, Overload::Wastes),
        (2.0, Overload::Wastes),
    ] {
        let (run, counts) = small(Era::Rfd58, capacity, overload, 1);
        kept(&run, &counts);
    }
}

/// Many enough that chance alone makes no peak. Abandoned work is dropped: a VMAPI as slow as these few
/// agents need would work at a full backlog for longer than any of them waits.
fn vm_agents(capacity: f64) -> Counts {
    let shape = Shape { vms: 2, links: 0 };
    let start = Start { agents: 3000, shape, era: Era::Rfd58, with: With::VmAgent };
    let (run, counts) = swarm_of(start, capacity, Overload::Drops, 1);
    kept(&run, &counts);
    assert_eq!((counts.of(Kind::Write), counts.of(Kind::Probe)), (0, 0));
    counts
}

#[test]
fn a_swarm_of_vm_agents_costs_a_list_each_and_writes_nothing() {
    let counts = vm_agents(20.0);
    assert_eq!((counts.total(), counts.given_up), (3000, 0));
}

#[test]
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
fn a_swarm_of_vm_agents_neither_drowns_a_slow_vmapi_nor_waits_for_ever() {
    // 70 % of what the start needs, and 45 %.
    for capacity in [3.5, 2.25] {
        let counts = vm_agents(capacity);
        assert!(counts.given_up > 0, "{capacity}: too little load to show anything");
    }
}
