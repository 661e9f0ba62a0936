// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operator's side of a migration as steps, how each is undone, and what holds at every moment
//! and at the end.

use std::time::Duration;

use futures_util::FutureExt as _;
use mocks::faults::{Mock as _, Reply};
use net_agent::holds::HoldsFile;
use serde_json::json;

use super::world::{CN, IP, MAC, NETWORK, OTHER, OTHER_MAC, VM, World, record};

/// One step of the operator, or of the services that act for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    HideSource,
    ShowSource,
    /// VMAPI places the VM on the target.
    MoveVmapi,
    MoveVmapiBack,
    ShowTarget,
    HideTarget,
    /// The hidden source's copy is deleted: there is no way back.
    DeleteSource,
    Reserve,
    Unreserve,
    /// The NIC's record is deleted while the source has the VM.
    DeleteRows,
    /// It is made again for the hidden target.
    AddRows,
    /// It is made again for the source.
    AddRowsBack,
}

impl Act {
    /// What takes this step back, if anything does.
    fn undone(self) -> Option<Self> {
        Some(match self {
            Self::HideSource => Self::ShowSource,
            Self::MoveVmapi => Self::MoveVmapiBack,
            Self::ShowTarget => Self::HideTarget,
            Self::Reserve => Self::Unreserve,
            Self::DeleteRows => Self::AddRowsBack,
            Self::AddRows => Self::DeleteRows,
            _ => return None,
        })
    }

    /// Does it.
    pub fn take(self, world: &World) {
        let flags = |node: usize| {
            let vm = world.vm(node).unwrap();
            (vm["state"].as_str().unwrap().to_owned(), vm["do_not_inventory"] == true)
        };
        let put = |node: usize, state: &str, hidden| world.put(node, VM, MAC, state, hidden);
        match self {
            Self::DeleteSource => world.take(0, VM),
            Self::HideSource => put(0, &flags(0).0, true),
            Self::ShowSource => put(0, &flags(0).0, false),
            Self::ShowTarget => put(1, &flags(1).0, false),
            Self::HideTarget => put(1, &flags(1).0, true),
            Self::MoveVmapi => world.vmapi.set(VM, "stopped", Some(CN[1])),
            Self::MoveVmapiBack => world.vmapi.set(VM, "stopped", Some(CN[0])),
            Self::Reserve => reserve(world, true),
            Self::Unreserve => reserve(world, false),
            Self::DeleteRows => assert!(world.napi.remove(MAC), "the row was there"),
            Self::AddRows => drop(world.napi.add_nic(record(CN[1], "stopped")).unwrap()),
            Self::AddRowsBack => drop(world.napi.add_nic(record(CN[0], "stopped")).unwrap()),
        }
    }
}

fn reserve(world: &World, reserved: bool) {
    let path = format!("/networks/{NETWORK}/ips/{IP}");
    let body = json!({"reserved": reserved}).to_string();
    let asked = http::Request::put(path).header("content-type", "application/json");
    let answer = world.napi.handle(asked.body(body.into()).unwrap()).now_or_never();
    let Some(Reply::Full(answer)) = answer else { panic!("no answer") };
    assert_eq!(answer.status(), 200);
}

/// When the target's agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetAgent {
    /// It has long run; the source's starts with the migration.
    On,
    /// It never runs; the source's starts with the migration.
    Off,
    /// It starts at any moment; the source's has long run.
    Late,
    /// Both start with the migration.
    New,
}

/// One migration and everything that may happen around it.
#[derive(Clone, Debug)]
pub struct Script {
    pub steps: Vec<Act>,
    pub target_agent: TargetAgent,
    /// May the operator give up after any step, and take back what was done?
    pub aborts: bool,
    /// Nodes on which the operator holds the VM from before until after.
    pub held: &'static [usize],
}

/// How far the operator is: steps done, and steps taken back once it was aborted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    pub done: usize,
    pub back: Option<usize>,
}

impl Script {
    /// The shipped order.
    pub fn shipped() -> Vec<Act> {
        use Act::*;
        vec![HideSource, MoveVmapi, ShowTarget, DeleteSource]
    }

    /// RFD 34's order.
    pub fn rfd34() -> Vec<Act> {
        use Act::*;
        vec![Reserve, DeleteRows, AddRows, HideSource, MoveVmapi, ShowTarget, DeleteSource]
    }

    /// The agents' least age of a record: none where all records are old, so that nothing hides
    /// behind it; longer than the migration where records are made in it.
    pub fn min_age(&self) -> &'static str {
        if self.steps.contains(&Act::AddRows) { "60s" } else { "1ms" }
    }

    /// The operator's next step, forward or back.
    pub fn next(&self, at: Position) -> Option<Act> {
        match at.back {
            None => self.steps.get(at.done).copied(),
            Some(back) => self.steps[..at.done].iter().rev().nth(back)?.undone(),
        }
    }

    /// Everything that the operator may still do from here, whatever else happens.
    pub fn may_still_do(&self, at: Position) -> Vec<Act> {
        let undone = |acts: &[Act]| acts.iter().filter_map(|act| act.undone()).collect::<Vec<_>>();
        match at.back {
            Some(back) => undone(&self.steps[..at.done.saturating_sub(back)]),
            None => {
                let back = if self.aborts { undone(&self.steps) } else { Vec::new() };
                [self.steps[at.done..].to_vec(), back].concat()
            }
        }
    }

    /// May the operator give up here?
    pub fn may_abort(&self, at: Position) -> bool {
        let last = at.done.checked_sub(1).map(|last| self.steps[last]);
        self.aborts && at.back.is_none() && last.is_some_and(|act| act.undone().is_some())
    }

    /// Before anything: the holds, and the agents.
    pub async fn before(&self, world: &World) {
        for node in self.held {
            let holds = HoldsFile::new(&world.state_dir(*node));
            let now = jiff::Timestamp::now();
            holds
                .hold(Some(VM.to_owned()), None, "migration".to_owned(), "root".to_owned(), now)
                .unwrap();
        }
        let long_run = match self.target_agent {
            TargetAgent::On => Some(1),
            TargetAgent::Late => Some(0),
            TargetAgent::Off | TargetAgent::New => None,
        };
        if let Some(node) = long_run {
            world.set_free(node, true);
            world.start(node);
            tokio::time::sleep(Duration::from_secs(2)).await;
            world.set_free(node, false);
        }
        match self.target_agent {
            TargetAgent::On | TargetAgent::Off => world.start(0),
            TargetAgent::New => [0, 1].into_iter().for_each(|node| world.start(node)),
            TargetAgent::Late => {}
        }
    }

    /// At every moment.
    pub fn always(&self, world: &World, at: Position, told: &[String]) {
        let row = world.napi.nic(MAC);
        assert_eq!(row.is_some(), self.has_row(at), "the NIC's record at {at:?}: {told:#?}");
        for vm in OTHER {
            let here = world.napi.nics().iter().any(|nic| nic["belongs_to_uuid"] == vm);
            assert!(here, "a NIC of {vm} is gone: {told:#?}");
        }
        for node in 0..2 {
            for line in world.asked(node) {
                let harmless = line.starts_with("GET ") || line.starts_with("PUT ");
                assert!(harmless, "agent {node}: {line}: {told:#?}");
                assert!(!line.contains("UNCONDITIONAL"), "agent {node}: {line}: {told:#?}");
                let held = self.held.contains(&node) && line.starts_with("PUT ");
                assert!(!held, "agent {node} is held: {line}: {told:#?}");
                let others = OTHER_MAC[1 - node].replace(':', "");
                assert!(!line.contains(&others), "agent {node}: {line}: {told:#?}");
            }
        }
        let hidden_target = world.vm(1).is_some_and(|vm| vm["do_not_inventory"] == true);
        if self.row_is_for_target(at) && hidden_target {
            let (cn, state) = (&row.as_ref().unwrap()["cn_uuid"], &row.as_ref().unwrap()["state"]);
            assert_eq!((cn, state), (&json!(CN[1]), &json!("stopped")), "touched: {told:#?}");
        }
    }

    /// Does NAPI have the record, by what the operator has done?
    fn has_row(&self, at: Position) -> bool {
        self.acts_done(at).fold(true, |has, act| match act {
            Act::DeleteRows => false,
            Act::AddRows | Act::AddRowsBack => true,
            _ => has,
        })
    }

    /// Was the record made for the target, and is it not shown yet?
    fn row_is_for_target(&self, at: Position) -> bool {
        let shown = self.acts_done(at).any(|act| act == Act::ShowTarget);
        !shown
            && self.acts_done(at).fold(false, |ours, act| match act {
                Act::AddRows => true,
                Act::DeleteRows => false,
                _ => ours,
            })
    }

    fn acts_done(&self, at: Position) -> impl Iterator<Item = Act> {
        let forward = self.steps[..at.done].iter().copied();
        let back = self.steps[..at.done].iter().rev().take(at.back.unwrap_or(0));
        forward.chain(back.filter_map(|act| act.undone()))
    }

    /// When nothing is left to do: the agents go on by themselves, are started anew, go on.
    pub async fn after(&self, world: &World, at: Position, told: &[String]) {
        world.set_free(0, true);
        world.set_free(1, true);
        tokio::time::sleep(Duration::from_secs(130)).await;
        for node in self.held {
            let holds = HoldsFile::new(&world.state_dir(*node));
            holds.release(Some(VM)).unwrap();
        }
        for node in [0, 1] {
            if world.runs(node) {
                world.stop(node);
                world.start(node);
            }
        }
        tokio::time::sleep(Duration::from_secs(130)).await;
        let unheld = Self { held: &[], ..self.clone() };
        unheld.always(world, at, told);
        let row = world.napi.nic(MAC).expect("the NIC survives");
        for node in [0, 1] {
            let shown = world.vm(node).filter(|vm| vm["do_not_inventory"] != true);
            let Some(vm) = shown.filter(|_| world.runs(node)) else { continue };
            assert_eq!(row["cn_uuid"], json!(CN[node]), "the VM is on node {node}: {told:#?}");
            assert_eq!(row["state"], vm["state"], "the VM is on node {node}: {told:#?}");
        }
        assert_eq!(row["belongs_to_uuid"], json!(VM));
    }
}
