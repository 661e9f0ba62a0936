// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an evacuation does with each VM of a node.

use std::collections::{BTreeMap, BTreeSet};

use sdc_clients::migrations::{Estimate, Migration};

/// A VM of the node, or one that has left it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvacuatedVm {
    /// Its alias, or nothing.
    pub alias: String,
    /// VMAPI has it on the node.
    pub is_here: bool,
    pub migration: Option<Migration>,
    /// What it takes.
    pub estimate: Option<Estimate>,
    /// The service's answer when a migration was asked for, or estimated.
    pub refusal: Option<String>,
}

/// Why a VM stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The service refuses.
    #[error("{0}")]
    Refused(String),
    /// An operator moves it step by step.
    #[error("an operator migrates it step by step: switch or abort it")]
    ByHand,
    /// It has its own time.
    #[error("it is scheduled for {0}")]
    Scheduled(String),
    /// It was tried, and failed.
    #[error("{0}")]
    Failed(String),
    /// An operator ended it after this evacuation began it.
    #[error("its migration was aborted")]
    Aborted,
    /// It came here not long ago.
    #[error("the migration that brought it here is not finalized")]
    NotFinalized,
}

/// What is to be done with a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Begin an automatic migration.
    Begin,
    /// Go on with one: sync, and the rest follows.
    Resume,
    /// A migration runs, or waits for its turn.
    Runs,
    /// It is on another node.
    Moved,
    /// It stays.
    Stays(Obstacle),
}

/// Returns what is to be done with a VM of the node `cn`. `was_tried`: this evacuation has resumed it, or
/// begun its migration, already.
pub fn next(known: &EvacuatedVm, cn: &str, was_tried: bool) -> Next {
    let Some(migration) = &known.migration else {
        return match (&known.refusal, known.is_here) {
            (_, false) => Next::Moved,
            (Some(why), true) => Next::Stays(Obstacle::Refused(why.clone())),
            (None, true) if was_tried => Next::Stays(Obstacle::Aborted),
            (None, true) => Next::Begin,
        };
    };
    let failed = || {
        let why = known.refusal.as_ref().or(migration.error.as_ref());
        Obstacle::Failed(why.map_or("the migration failed".to_owned(), Clone::clone))
    };
    match (migration.state.as_str(), migration.phase.as_str()) {
        ("queued" | "running", _) => Next::Runs,
        ("successful", _) if migration.source_server_uuid.as_deref() == Some(cn) => Next::Moved,
        ("successful", _) => Next::Stays(Obstacle::NotFinalized),
        ("scheduled", _) => {
            let at = migration.scheduled_timestamp.clone().unwrap_or_default();
            Next::Stays(Obstacle::Scheduled(at))
        }
        // Nothing was made yet: its move has not begun.
        ("failed", "begin") if migration.target_server_uuid.is_none() && !was_tried => Next::Begin,
        ("failed", "begin") if migration.target_server_uuid.is_none() => Next::Stays(failed()),
        _ if !migration.automatic => Next::Stays(Obstacle::ByHand),
        _ if known.refusal.is_some() => Next::Stays(failed()),
        ("paused", _) => Next::Resume,
        ("failed", "begin") if !was_tried => Next::Begin,
        ("failed", "sync") if !was_tried => Next::Resume,
        _ => Next::Stays(failed()),
    }
}

/// Returns the VMs to act on now, so that no more than `limit` run.
pub fn starts(
    vms: &BTreeMap<String, EvacuatedVm>,
    cn: &str,
    tried: &BTreeSet<String>,
    limit: usize,
) -> Vec<(String, Next)> {
    let nexts = vms.iter().map(|(vm, known)| (vm, next(known, cn, tried.contains(vm))));
    let nexts: Vec<_> = nexts.collect();
    let runs = nexts.iter().filter(|(_, next)| *next == Next::Runs).count();
    let free = limit.saturating_sub(runs);
    // What has begun goes first.
    let resumed = nexts.iter().filter(|(_, next)| *next == Next::Resume);
    let begun = nexts.iter().filter(|(_, next)| *next == Next::Begin);
    resumed.chain(begun).take(free).map(|(vm, next)| ((*vm).clone(), next.clone())).collect()
}

/// How many VMs moved, how many stay, and how many are still to move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// They have moved.
    pub moved: usize,
    /// They stay.
    pub stay: usize,
    /// They are still to move.
    pub left: usize,
}

pub fn count(vms: &BTreeMap<String, EvacuatedVm>, cn: &str, tried: &BTreeSet<String>) -> Count {
    let mut count = Count::default();
    for (vm, known) in vms {
        *match next(known, cn, tried.contains(vm)) {
            Next::Moved => &mut count.moved,
            Next::Stays(_) => &mut count.stay,
            Next::Begin | Next::Resume | Next::Runs => &mut count.left,
        } += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn migrates(phase: &str, state: &str, automatic: bool) -> EvacuatedVm {
        let migration = json!({
            "phase": phase, "state": state, "automatic": automatic, "source_server_uuid": "CN",
            "target_server_uuid": "T", "scheduled_timestamp": "noon", "error": "boom",
        });
        let migration = serde_json::from_value(migration).unwrap();
        EvacuatedVm { is_here: true, migration: Some(migration), ..EvacuatedVm::default() }
    }

    #[test]
    fn each_vm_has_its_next_step() {
        let here = EvacuatedVm { is_here: true, ..EvacuatedVm::default() };
        let refused = EvacuatedVm { refusal: Some("core".into()), ..here.clone() };
        let fails = |why: &str| Next::Stays(Obstacle::Failed(why.into()));
        for (what, known, first, again) in [
            ("nothing yet", here.clone(), Next::Begin, Next::Stays(Obstacle::Aborted)),
            ("left", EvacuatedVm::default(), Next::Moved, Next::Moved),
            (
                "refused",
                refused,
                Next::Stays(Obstacle::Refused("core".into())),
                Next::Stays(Obstacle::Refused("core".into())),
            ),
            ("runs", migrates("sync", "running", false), Next::Runs, Next::Runs),
            ("queued", migrates("begin", "queued", true), Next::Runs, Next::Runs),
            ("paused", migrates("sync", "paused", true), Next::Resume, Next::Resume),
            (
                "by hand",
                migrates("sync", "paused", false),
                Next::Stays(Obstacle::ByHand),
                Next::Stays(Obstacle::ByHand),
            ),
            (
                "scheduled",
                migrates("sync", "scheduled", true),
                Next::Stays(Obstacle::Scheduled("noon".into())),
                Next::Stays(Obstacle::Scheduled("noon".into())),
            ),
            ("failed begin", migrates("begin", "failed", true), Next::Begin, fails("boom")),
            ("failed sync", migrates("sync", "failed", true), Next::Resume, fails("boom")),
            ("failed switch", migrates("switch", "failed", true), fails("boom"), fails("boom")),
            ("moved", migrates("switch", "successful", true), Next::Moved, Next::Moved),
        ] {
            assert_eq!(next(&known, "CN", false), first, "{what}");
            assert_eq!(next(&known, "CN", true), again, "{what}, tried");
        }
        let mut nothing = migrates("begin", "failed", false);
        nothing.migration.as_mut().unwrap().target_server_uuid = None;
        assert_eq!(next(&nothing, "CN", false), Next::Begin);
        assert_eq!(next(&nothing, "CN", true), fails("boom"));
        let came = next(&migrates("switch", "successful", true), "T", false);
        assert_eq!(came, Next::Stays(Obstacle::NotFinalized));
        let known = EvacuatedVm { refusal: Some("no".into()), ..migrates("sync", "paused", true) };
        assert_eq!(next(&known, "CN", true), fails("no"), "a refused resume is not asked again");
    }

    #[test] // R13
    fn no_more_than_the_limit_run_and_what_has_begun_goes_first() {
        let here = EvacuatedVm { is_here: true, ..EvacuatedVm::default() };
        let vms: BTreeMap<String, EvacuatedVm> = [
            ("a", here.clone()),
            ("b", migrates("sync", "running", true)),
            ("c", migrates("sync", "paused", true)),
            ("d", here),
        ]
        .map(|(vm, known)| (vm.to_owned(), known))
        .into();
        let started = |limit| {
            let started = starts(&vms, "CN", &BTreeSet::new(), limit);
            started.into_iter().map(|(vm, _)| vm).collect::<Vec<_>>()
        };
        assert_eq!(started(1), [""; 0]);
        assert_eq!(started(2), ["c"]);
        assert_eq!(started(3), ["c", "a"]);
        assert_eq!(started(9), ["c", "a", "d"]);
    }
}
