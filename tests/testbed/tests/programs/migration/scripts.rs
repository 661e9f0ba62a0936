// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operator's side of a migration as steps, how each is undone, and when the agents run.

use std::time::Duration;

use futures_util::FutureExt as _;
use mocks::faults::{Mock, Reply};
use serde_json::{Value, json};

use super::world::{CN, Kind, MAC, VM, World};

/// One step of the operator, or of the services that act for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The operator holds the VM on both nodes, until all is over.
    Hold,
    StopSource,
    StartSource,
    HideSource,
    ShowSource,
    /// VMAPI places the VM on the target: the record has nothing else after it, as the shipped step does.
    Erase,
    EraseBack,
    ShowTarget,
    HideTarget,
    /// The hidden source's copy is deleted: there is no way back.
    DeleteSource,
}

impl Act {
    /// What takes this step back, if anything does.
    fn undone(self) -> Option<Self> {
        Some(match self {
            Self::StopSource => Self::StartSource,
            Self::HideSource => Self::ShowSource,
            Self::Erase => Self::EraseBack,
            Self::ShowTarget => Self::HideTarget,
            _ => return None,
        })
    }

    pub fn take(self, world: &World) {
        let flags = |node: usize| {
            let vm = world.vm(node).unwrap();
            (vm["state"].as_str().unwrap().to_owned(), vm["do_not_inventory"] == true)
        };
        let put = |node: usize, state: &str, hidden| world.put(node, VM, MAC, state, hidden);
        match self {
            Self::Hold => world.hold(&[0, 1]),
            Self::DeleteSource => world.take(0, VM),
            Self::StopSource => put(0, "stopped", flags(0).1),
            Self::StartSource => put(0, "running", flags(0).1),
            Self::HideSource => put(0, &flags(0).0, true),
            Self::ShowSource => put(0, &flags(0).0, false),
            Self::ShowTarget => put(1, &flags(1).0, false),
            Self::HideTarget => put(1, &flags(1).0, true),
            Self::Erase => erase(world, 1),
            Self::EraseBack => erase(world, 0),
        }
    }
}

fn erase(world: &World, node: usize) {
    let path = format!("/migrations/{VM}/updateVmServerUuid");
    ask(&world.vmapi, http::Request::post(path), &json!({"server_uuid": CN[node]}));
}

fn ask(service: &impl Mock, request: http::request::Builder, body: &Value) {
    let asked = request.header("content-type", "application/json");
    let answer = service.handle(asked.body(body.to_string().into()).unwrap()).now_or_never();
    let Some(Reply::Full(answer)) = answer else { panic!("no answer") };
    assert_eq!(answer.status(), 200);
}

/// When a node's agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It has long run.
    On,
    /// It does not.
    Off,
    /// It starts at any moment.
    Late,
    /// It starts with the migration, for the first time.
    New,
    /// It has long run, is stopped at any moment while both copies are hidden, and starts at any
    /// moment after that.
    Restarted,
}

/// One migration and everything that may happen around it.
#[derive(Clone, Debug)]
pub struct Script {
    pub kind: Kind,
    pub agents: [When; 2],
    pub steps: Vec<Act>,
    /// The operator may give up after any step, and undo what was done.
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
    /// The order of the deployed service; the explorer has every order of ours.
    pub fn shipped() -> Vec<Act> {
        use Act::*;
        vec![HideSource, Erase, ShowTarget, DeleteSource]
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

    /// Returns true if the operator may give up here.
    pub fn may_abort(&self, at: Position) -> bool {
        let last = at.done.checked_sub(1).map(|last| self.steps[last]);
        self.aborts && at.back.is_none() && last.is_some_and(|act| act.undone().is_some())
    }

    /// Before anything: the holds, and the agents.
    pub async fn before(&self, world: &World) {
        world.hold(self.held);
        let has_run = |node: &usize| match self.agents[*node] {
            When::On | When::Restarted => true,
            // A vm-agent that was never there has nothing to tell new VMs by.
            When::Off | When::Late => self.kind == Kind::Vm,
            When::New => false,
        };
        for node in [0, 1].into_iter().filter(has_run) {
            world.set_free(node, true);
            world.start(node);
            tokio::time::sleep(Duration::from_secs(2)).await;
            world.set_free(node, false);
            if matches!(self.agents[node], When::Off | When::Late) {
                world.stop(node);
            }
        }
        (0..2).filter(|node| self.agents[*node] == When::New).for_each(|node| world.start(node));
    }

    /// Returns true if this node's agent may be started now.
    pub fn may_start(&self, node: usize, world: &World) -> bool {
        let is_due = match self.agents[node] {
            When::Late => true,
            When::Restarted => world.was_stopped(node),
            _ => false,
        };
        is_due && !world.runs(node)
    }

    /// Returns true if this node's agent may still be stopped, now or later.
    pub fn may_still_stop(&self, node: usize, world: &World) -> bool {
        self.agents[node] == When::Restarted && !world.was_stopped(node)
    }

    /// The operator is done: all goes on by itself for a while.
    pub async fn go_on(&self, world: &World) {
        (0..2).for_each(|node| world.set_free(node, true));
        tokio::time::sleep(Duration::from_secs(130)).await;
    }

    /// After that the holds end, and the agents that run are started anew.
    pub async fn start_anew(&self, world: &World) {
        world.release();
        for node in (0..2).filter(|node| world.runs(*node)) {
            world.stop(node);
            world.start(node);
        }
        tokio::time::sleep(Duration::from_secs(130)).await;
    }

    /// The operator's acts so far, in order.
    pub fn acts_done(&self, at: Position) -> impl Iterator<Item = Act> {
        let forward = self.steps[..at.done].iter().copied();
        let back = self.steps[..at.done].iter().rev().take(at.back.unwrap_or(0));
        forward.chain(back.filter_map(|act| act.undone()))
    }
}
