// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that changes at random while vminfod and both agents are killed and stopped, and NAPI and VMAPI answer badly:
//! in the end VMAPI shows what the node shows, and no NIC of a VM is gone.

use std::collections::BTreeSet;

use mocks::faults::{Action, Rule};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use testbed::changes::change;
use tokio::time::Instant;

use super::told::{MINUTE, agrees, lab_of};
use crate::common::{Lab, signal, status, text, until};

/// So many that those which go do not trip a brake.
const VMS: u32 = 100;
const ROUNDS: usize = 60;
const AT_ONCE: usize = 5;
const PROGRAMS: [&str; 3] = ["vminfod", "net-agent", "vm-agent"];

async fn starts(lab: &mut Lab, program: &str) {
    match program {
        "vminfod" => lab.start_vminfod().await.unwrap(),
        "net-agent" => lab.start_agent().await.unwrap(),
        _ => lab.start_vm_agent().await.unwrap(),
    }
}

/// The VMs that were hidden once: vm-agent says nothing of those that leave soon after.
type Hidden = BTreeSet<String>;

/// A few changes; what the state of a VM does not allow is none.
async fn changes(lab: &Lab, rng: &mut StdRng, hidden: &mut Hidden) {
    let node = lab.node();
    let is_hidden = |vm: &String| {
        node.zone_config(vm).is_ok_and(|xml| xml.value("attr", "do-not-inventory") == Some("true"))
    };
    for _ in 0..rng.random_range(1..=AT_ONCE) {
        let _refused = change(&lab.verbs(), rng).await;
        let zones = node.zones().unwrap();
        hidden.extend(zones.iter().map(|zone| zone.zonename.clone()).filter(is_hidden));
    }
}

fn rule(rng: &mut StdRng) -> Rule {
    let each = Rule::any(match rng.random_range(0..7) {
        0 => Action::Status { status: 503, body: None, retry_after: None },
        1 => Action::Status { status: 404, body: None, retry_after: None },
        2 => Action::Cut,
        3 => Action::DropResponse,
        4 => Action::Truncate { bytes: 7 },
        5 => Action::Hang { ms: 700 },
        _ => Action::DelayCommit { ms: 300 },
    });
    each.times(rng.random_range(1..20))
}

/// One of the programs dies or stands still, or a service answers badly, while the node changes.
async fn disturbed(lab: &mut Lab, rng: &mut StdRng, hidden: &mut Hidden) {
    let program = PROGRAMS[rng.random_range(0..PROGRAMS.len())];
    match rng.random_range(0..6) {
        0 | 1 => {
            lab.end(program, true).await.unwrap();
            changes(lab, rng, hidden).await;
            starts(lab, program).await;
        }
        2 => {
            let pid = lab.pid(program).unwrap();
            signal(pid, Signal::STOP);
            changes(lab, rng, hidden).await;
            signal(pid, Signal::CONT);
        }
        3 => lab.vmapi.store().faults().add(rule(rng)),
        4 => lab.napi.store().faults().add(rule(rng)),
        _ => {
            lab.vmapi.store().faults().clear();
            lab.napi.store().faults().clear();
        }
    }
}

/// What is wrong at the end.
fn wrong(lab: &Lab, [before, now]: [&[VmObject]; 2], hidden: &Hidden) -> Vec<String> {
    let cn = lab.node().cn_uuid();
    let is_here = |uuid: &str| now.iter().any(|vm| text(vm, "uuid") == uuid);
    let living = lab.vmapi.store().all().into_iter().filter(|record| {
        record["server_uuid"] == cn
            && !["destroyed", "failed"].map(Into::into).contains(&record["state"])
    });
    let ghosts = living
        .filter_map(|record| record["uuid"].as_str().map(str::to_owned))
        .filter(|uuid| !is_here(uuid) && !hidden.contains(uuid))
        .map(|uuid| format!("VMAPI shows {uuid}, which is gone"));
    let lost = now
        .iter()
        .flat_map(|vm| {
            let old = before.iter().find(|old| text(old, "uuid") == text(vm, "uuid"));
            let kept = move |mac: &_| old.is_some_and(|old| old.macs().contains(mac));
            vm.macs().into_iter().filter(kept).collect::<Vec<_>>()
        })
        .filter(|mac| lab.napi.store().nic(&mac.to_string()).is_none())
        .map(|mac| format!("NAPI has lost {mac}"));
    ghosts.chain(lost).collect()
}

#[tokio::test(flavor = "multi_thread")] // W28
#[ignore = "minutes: six storms of kills"]
async fn after_a_storm_of_kills_vmapi_and_napi_have_what_the_node_has() {
    for seed in 1..=6 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut lab = lab_of(VMS).await;
        let before = lab.vms().await;
        lab.napi.store().seed_from_vms(&before, lab.node().cn_uuid()).unwrap();
        lab.start_agent().await.unwrap();
        agrees(&lab, &[]).await;
        let mut hidden = Hidden::new();
        for _ in 0..ROUNDS {
            disturbed(&mut lab, &mut rng, &mut hidden).await;
            changes(&lab, &mut rng, &mut hidden).await;
        }
        lab.vmapi.store().faults().clear();
        lab.napi.store().faults().clear();
        let now = lab.vms().await;
        let is_gone = |vm: &&VmObject| {
            !vm.is_hidden()
                && !hidden.contains(text(vm, "uuid"))
                && !now.iter().any(|left| text(left, "uuid") == text(vm, "uuid"))
        };
        let gone: Vec<VmObject> = before.iter().filter(is_gone).cloned().collect();
        let told = status(&lab.vm_agent_url()).await;
        println!(
            "seed {seed}: {} VMs, {} gone; held {}, gone {}",
            now.len(),
            gone.len(),
            told["held"],
            told["gone"]
        );
        agrees(&lab, &gone).await;
        let began = Instant::now();
        until("nothing is wrong", async || {
            let wrong = wrong(&lab, [&before, &lab.vms().await], &hidden);
            assert!(began.elapsed() < MINUTE, "seed {seed}: {wrong:?}");
            wrong.is_empty()
        })
        .await;
        lab.stop().await;
    }
}
