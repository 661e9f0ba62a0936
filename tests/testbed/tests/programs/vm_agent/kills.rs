// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! kill -9 at any moment of the lab's tour: vm-agent, vminfod or VMAPI dies while the tour's step is at
//! its k-th request to VMAPI, more happens while it is away, and VMAPI is right soon after its return.

use std::net::SocketAddr;

use mocks::faults::{Action, Rule};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use testbed::process;

use super::told::{agrees, asked, lab, told, told_nothing_wrong};
use crate::common::{LATE, Lab, text, until};

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    VmAgent,
    Vminfod,
    Vmapi,
}

impl Victim {
    /// It dies as by kill -9: connections break, whatever was being done. VMAPI's records live on.
    async fn dies(self, lab: &mut Lab) {
        match self {
            Self::VmAgent => lab.end("vm-agent", true).await.unwrap(),
            Self::Vminfod => lab.end("vminfod", true).await.unwrap(),
            Self::Vmapi => {
                lab.serve_vmapi_at(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
            }
        }
    }

    async fn returns(self, lab: &mut Lab, vmapi: SocketAddr) {
        match self {
            Self::VmAgent => lab.start_vm_agent().await.unwrap(),
            Self::Vminfod => lab.start_vminfod().await.unwrap(),
            Self::Vmapi => lab.serve_vmapi_at(vmapi).await.unwrap(),
        }
    }
}

/// A step of the tour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The agent compares VMAPI's list with the node, where one record is wrong.
    Start,
    Boot,
    Quota,
    Delete,
}

const STEPS: [Step; 4] = [Step::Start, Step::Boot, Step::Quota, Step::Delete];

/// The VMs of the tour: those that are left, and those that are gone. The first is booted and halted.
struct Cast {
    left: Vec<VmObject>,
    gone: Vec<VmObject>,
    runs: bool,
}

impl Step {
    async fn is_taken(self, lab: &mut Lab, cast: &mut Cast) {
        let vm = cast.left[0].clone();
        match self {
            Self::Start => {
                lab.end("vm-agent", true).await.unwrap();
                lab.vmapi.store().set(text(&vm, "uuid"), "failing", Some(lab.node().cn_uuid()));
                lab.start_vm_agent().await.unwrap();
            }
            Self::Boot => {
                let verbs = lab.verbs();
                cast.runs = !cast.runs;
                match cast.runs {
                    false => verbs.halt(text(&vm, "uuid"), 0).await.unwrap(),
                    true => verbs.boot(text(&vm, "uuid")).await.unwrap(),
                }
            }
            Self::Quota => {
                let gib = told(lab, &vm, "quota").as_u64().unwrap() + 7;
                let quota = format!("quota={}", gib << 30);
                let args = ["set", &quota, text(&vm, "zfs_filesystem")];
                let done = process::run(&lab.node().tool("zfs"), &args, LATE).await.unwrap();
                assert_eq!(done.code, Some(0), "{}", done.stderr);
            }
            Self::Delete => {
                let vm = cast.left.pop().unwrap();
                lab.verbs().delete_raw(text(&vm, "uuid")).await.unwrap();
                cast.gone.push(vm);
            }
        }
    }
}

/// The victim dies in each step after each number of requests that a step has; VMAPI takes this long
/// for each, so that one is under way when its peer dies.
async fn dies_in_every_step(victim: Victim, ms: u64) {
    let mut lab = lab().await;
    let after = 0..3;
    let vmapi = lab.vmapi.addr();
    let all = lab.vms().await;
    let hidden: Vec<VmObject> = all.iter().filter(|vm| vm.is_hidden()).cloned().collect();
    let is_used = |vm: &VmObject| {
        text(vm, "state") == "running" && text(vm, "brand") != "bhyve" && !vm.is_hidden()
    };
    let left = all.into_iter().filter(is_used).filter(|vm| vm.contains_key("quota")).collect();
    let mut cast = Cast { left, gone: Vec::new(), runs: true };
    assert!(cast.left.len() > after.len(), "{} VMs", cast.left.len());
    agrees(&lab, &[]).await;
    for after in after {
        for step in STEPS {
            lab.vmapi.store().faults().add(Rule::any(Action::DelayCommit { ms }));
            let before = asked(&lab);
            step.is_taken(&mut lab, &mut cast).await;
            until("the step is at this request", async || asked(&lab) >= before + after).await;
            victim.dies(&mut lab).await;
            lab.vmapi.store().faults().clear();
            Step::Boot.is_taken(&mut lab, &mut cast).await;
            victim.returns(&mut lab, vmapi).await;
            agrees(&lab, &cast.gone).await;
            told_nothing_wrong(&lab, &cast.gone, &hidden);
            println!("{victim:?} died in {step:?} after {after} requests");
        }
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vm_agent_dies_in_every_step_of_the_tour() {
    dies_in_every_step(Victim::VmAgent, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vminfod_dies_in_every_step_of_the_tour() {
    dies_in_every_step(Victim::Vminfod, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vmapi_dies_in_every_step_of_the_tour() {
    dies_in_every_step(Victim::Vmapi, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: more moments, from a VMAPI that answers at once to one that takes seconds"]
async fn each_dies_at_many_more_moments() {
    for ms in [0, 5, 20, 50, 250, 1000, 3000] {
        for victim in [Victim::VmAgent, Victim::Vminfod, Victim::Vmapi] {
            dies_in_every_step(victim, ms).await;
        }
    }
}
