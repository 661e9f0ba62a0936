// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Days of chance: VMs come, go, hide and move with and without events, records are written by
//! others, services fail. No delete may be wrong when it arrives, by what is true at that moment;
//! and when chance rests, what really leaked is gone. `STORM_SEEDS`, `STORM_STEPS` and
//! `STORM_FIRST` in the environment ask for more of it than a build has time for.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, Fault, HOME, TARGET, World, id, mac};
use crate::{HOUR, lawful};

/// A small generator: the same seed, the same days.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn step(world: &World, chance: &mut Chance) {
    let n = u8::try_from(chance.below(6)).unwrap() + 1;
    let vm = format!("v{n}");
    let here = world.hub(HOME).vms().contains_key(&id(&vm));
    match chance.below(14) {
        0..=2 => {
            let hidden = chance.below(6) == 0;
            let macs: &[u8] = if chance.below(3) == 0 { &[n] } else { &[n, n + 20] };
            let state =
                ["running", "stopped", "provisioning"][usize::try_from(chance.below(3)).unwrap()];
            world.vmapi(&vm, "running", CN);
            let nics: Vec<_> = macs.iter().map(|n| json!({"mac": mac(*n)})).collect();
            world.vmapi_has(&vm, "nics", json!(nics));
            if chance.below(4) == 0 {
                world.quietly(&vm, Some((state, macs, hidden)));
            } else {
                world.vm(&vm, state, macs, hidden);
            }
        }
        3..=5 if here => {
            if chance.below(3) == 0 {
                world.quietly(&vm, None);
            } else {
                world.delete_vm(&vm);
            }
        }
        6 | 7 if !here => world.vmapi(&vm, "destroyed", CN),
        8 => {
            let known = world.vmapi.get(&id(&vm));
            if known.is_some_and(|known| known["state"] == "running") {
                world.vmapi_has(&vm, "server_uuid", json!(TARGET));
            }
        }
        9 | 10 => {
            let cn = [json!(CN), json!(CN), json!(null), json!(TARGET)];
            let cn = cn[usize::try_from(chance.below(4)).unwrap()].clone();
            let state =
                ["running", "stopped", "provisioning"][usize::try_from(chance.below(3)).unwrap()];
            let n = if chance.below(2) == 0 { n } else { n + 20 };
            world.nic(n, &vm, json!({"cn_uuid": cn, "state": state, "age_s": 0}));
        }
        11 => world.cut(),
        12 => {
            let fault = [Fault::LoseAnswer, Fault::Refuse, Fault::Reset, Fault::Unavailable];
            let fault = fault[usize::try_from(chance.below(4)).unwrap()];
            let mut state = world.state();
            let next = state.sent + usize::try_from(chance.below(3)).unwrap();
            state.faults.insert(next, fault);
        }
        13 => match chance.below(3) {
            0 => world.vmapi_is_down(world.vmapi.faults().list().is_empty()),
            1 => world.state().touch_next = 2,
            _ if world.hub(HOME).is_up() => world.hub(HOME).stop(),
            _ => world.hub(HOME).restart(),
        },
        _ => {}
    }
}

async fn days(seed: u64, steps: u64) -> usize {
    let world = World::new();
    world.vm("always", "running", &[100], false);
    world.nic(100, "always", json!({}));
    for n in 30..60 {
        world.nic(n, "always", json!({"cn_uuid": TARGET}));
    }
    let (agent, shutdown) = world.start(json!({"seed": seed, "relist": "2h"}));
    let mut chance = Chance(seed);
    for _ in 0..steps {
        step(&world, &mut chance);
        let longest = if chance.below(4) == 0 { 1_500_000 } else { 20_000 };
        sleep(Duration::from_millis(200 + chance.below(longest))).await;
    }
    // Chance rests, and everything answers.
    world.vmapi_is_down(false);
    world.state().touch_next = 0;
    world.state().faults.clear();
    if !world.hub(HOME).is_up() {
        world.hub(HOME).restart();
    }
    let here = world.hub(HOME).vms();
    for vm in (1..=6).map(|n| format!("v{n}")).filter(|vm| !here.contains_key(&id(vm))) {
        world.vmapi(&vm, "destroyed", CN);
    }
    sleep(8 * HOUR).await;
    // Chance may take more than half of the node's VMs at once: only the operator says that this is true.
    if let Some(id) = agent.offer().await["approval"]["id"].as_str() {
        agent.approve(id, "root").unwrap();
        sleep(HOUR).await;
    }
    assert!(!shutdown.is_triggered(), "seed {seed}: a vital task ended");
    assert!(world.state().wrong.is_empty(), "seed {seed}: {:#?}", world.state().wrong);
    let here = world.hub(HOME).vms();
    for nic in world.napi.nics() {
        let vm = nic["belongs_to_uuid"].as_str().unwrap();
        let leaked = nic["cn_uuid"] == CN && !here.contains_key(vm);
        let held = here
            .values()
            .any(|vm| vm["nics"].as_array().unwrap().iter().any(|held| held["mac"] == nic["mac"]));
        assert!(!leaked || held, "seed {seed}: still there: {nic} {}", agent.plan_json());
    }
    lawful(&world);
    // Later seeds are not to carry this agent along.
    shutdown.trigger();
    world.asked("DELETE").len()
}

#[tokio::test(start_paused = true)]
async fn no_delete_is_wrong_in_days_of_chance() {
    let asked = |key: &str, usual| std::env::var(key).map_or(usual, |n| n.parse().unwrap());
    let (first, seeds, steps) =
        (asked("STORM_FIRST", 0), asked("STORM_SEEDS", 4), asked("STORM_STEPS", 150));
    let mut deletes = 0;
    for seed in first..first + seeds {
        deletes += days(seed, steps).await;
        eprintln!("seed {seed}: {deletes} deletes so far");
    }
    assert!(deletes > 2, "{deletes}: chance never led to a delete");
}
