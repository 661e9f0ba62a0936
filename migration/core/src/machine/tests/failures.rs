// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is done after each failure (the rows of the failure table).

use pretty_assertions::assert_eq;

use super::model::{Fault, World};
use crate::intent::End;
use crate::machine::*;
use crate::record::{Phase, State};
use crate::vm_agent::VmAgent;

fn runs(world: &mut World) {
    while world.is_busy() {
        world.round(Fault::None);
        world.check();
        assert_eq!(world.broken, None);
    }
}

/// A world in which these commands were given and ended.
fn after(actions: &[Action]) -> World {
    let mut world = World::new(true, None);
    for action in actions {
        assert!(world.command(*action), "{action:?}");
        runs(&mut world);
    }
    world
}

fn state(world: &World) -> (Phase, State) {
    let record = world.record.as_ref().unwrap();
    (record.phase, record.state)
}

/// Does rounds until this order was given.
fn until(world: &mut World, order: &str) {
    while world.orders.last().is_none_or(|last| last != order) {
        world.round(Fault::None);
    }
}

#[test] // M230
fn a_switch_whose_rest_cannot_be_planned_stops_no_vm() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.command(Action::Switch);
    let record = world.record.clone().unwrap();
    let seen = |world: &mut World, end: End| {
        let copy = Some(world.disk(end).unwrap().seen.clone());
        Report::Node(Node { copy, vm_agent: VmAgent::Ours, ..Node::default() })
    };
    let facts = Facts {
        source: seen(&mut world, End::Source),
        target: seen(&mut world, End::Target),
        vmapi: Some(End::Source),
        reserved: false,
        settings: SettingsMatch::Same,
        dated: true,
    };
    assert_eq!(next(&record, &facts), Next::Do(Step::Rehearse));
    let deaf = Facts { vmapi: None, ..facts.clone() };
    assert_eq!(next(&record, &deaf), Next::Wait(Wait::Vmapi));
    let mut full = facts.clone();
    let Report::Node(Node { copy: Some(copy), .. }) = &mut full.source else { panic!() };
    copy.taken = vec![(2, u32::MAX)];
    assert!(matches!(next(&record, &full), Next::GiveUp(Reason::NamesTaken(_))));
}

#[test] // M19, R10
fn a_stream_that_is_cut_is_sent_again_and_a_dead_end_fails_with_the_quota_restored() {
    let mut world = after(&[Action::Begin]);
    world.command(Action::Sync);
    for _ in 0..3 {
        world.round(Fault::Cut);
    }
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Paused));
    world.command(Action::Sync);
    world.round(Fault::Cut);
    world.round(Fault::Cut);
    world.goes_down(End::Target);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Failed));
    assert!(!world.disk(End::Source).unwrap().seen.quota_lifted);
    world.comes_up(End::Target);
    world.command(Action::Sync);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Paused));
}

#[test] // M19
fn a_source_that_reboots_in_a_sync_boots_its_vm_and_goes_on() {
    let mut world = after(&[Action::Begin]);
    world.command(Action::Sync);
    world.round(Fault::None);
    world.goes_down(End::Source);
    world.round(Fault::None);
    world.comes_up(End::Source);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Paused));
    assert!(world.disk(End::Source).unwrap().seen.running);
}

#[test] // M20
fn a_vm_that_is_started_during_the_final_sync_sends_the_switch_back_to_sync() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.command(Action::Switch);
    until(&mut world, "send 2 from source");
    let disk = world.disk(End::Source).unwrap();
    (disk.seen.running, disk.seen.started_since_snapshot) = (true, true);
    world.writes(End::Source);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Failed));
    let source = world.disk(End::Source).unwrap().seen.clone();
    assert!(source.running && source.autoboot && !source.hidden);
    let error = world.record.as_ref().unwrap().error.clone();
    assert_eq!(error.as_deref(), Some("the VM was started during the final sync"));
    assert!(world.command(Action::Switch));
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Switch, State::Successful));
}

#[test] // M21, R16
fn a_target_lost_after_the_source_was_hidden_gives_the_source_back_by_itself() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.command(Action::Switch);
    until(&mut world, "hide source");
    world.goes_down(End::Target);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Failed));
    let source = world.disk(End::Source).unwrap().seen.clone();
    assert!(source.running && source.autoboot && !source.hidden && !source.quota_lifted);
    assert!(!world.reserved && world.vmapi == End::Source);
}

#[test] // M22, R16
fn a_stale_target_boots_by_the_word_of_an_operator_only() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.writes(End::Source);
    world.command(Action::Switch);
    until(&mut world, "stop source");
    world.goes_down(End::Source);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Switch, State::Failed));
    assert!(!world.disk(End::Target).unwrap().seen.running);
    // Without the word a repeated switch waits, and fails again.
    world.command(Action::Switch);
    runs(&mut world);
    assert!(world.disk(End::Target).unwrap().seen.hidden);
    world.declare_dead(End::Source);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Switch, State::Successful));
    assert!(world.disk(End::Target).unwrap().seen.running);
    // The source that comes back does not boot its old copy.
    world.disk(End::Source).unwrap().seen.autoboot = true;
    world.comes_up(End::Source);
    world.check();
    assert_eq!(world.broken, None);
    assert!(world.disk(End::Source).unwrap().seen.is_off());
}

#[test] // M23
fn a_rollback_without_a_common_snapshot_changes_nothing_unless_the_loss_is_accepted() {
    let mut world = after(&[Action::Begin, Action::Sync, Action::Switch]);
    world.disk(End::Source).unwrap().seen.snapshots.clear();
    world.command(Action::Rollback);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Rollback, State::Failed));
    assert!(world.disk(End::Target).unwrap().seen.running);
    world.command(Action::Rollback);
    let word = crate::intent::Confirmation {
        by: uuid::Uuid::nil(),
        at: crate::time::Time::from_millis(0),
    };
    world.record.as_mut().unwrap().intent.discard = Some(word);
    world.truth = world.disk(End::Source).unwrap().data; // by his word
    runs(&mut world);
    assert!(world.record.is_none() && world.disk(End::Source).unwrap().seen.running);
}

#[test] // M24, R18
fn pause_restores_the_quota_and_the_next_sync_goes_on() {
    let mut world = after(&[Action::Begin]);
    world.command(Action::Sync);
    world.round(Fault::None);
    world.round(Fault::Cut);
    assert!(world.command(Action::Pause));
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Paused));
    assert_eq!(world.record.as_ref().unwrap().num_sync_phases, 0);
    assert!(!world.disk(End::Source).unwrap().seen.quota_lifted);
    assert!(!world.disk(End::Target).unwrap().seen.quota_lifted);
    world.command(Action::Sync);
    runs(&mut world);
    assert_eq!(world.record.as_ref().unwrap().num_sync_phases, 1);
}

#[test] // M25
fn a_record_of_the_deployed_service_counts_as_one_whose_target_has_run() {
    let json = serde_json::json!({"phase": "switch", "state": "successful", "num_sync_phases": 2});
    let mut record = crate::samples::record(json);
    let now = crate::time::Time::from_millis(0);
    start(&mut record, Phase::Rollback, "x", uuid::Uuid::nil(), now);
    assert!(record.intent.target_shown && record.intent.target_booted);
    // The deployed service removes the snapshots at the end of a switch.
    let off = Copy { hidden: true, ..Copy::default() };
    let on = Copy { running: true, autoboot: true, ..Copy::default() };
    let seen = |copy| {
        let vm_agent = VmAgent::Ours;
        Report::Node(Node { held: true, copy: Some(copy), vm_agent, ..Node::default() })
    };
    let facts = Facts {
        source: seen(off),
        target: seen(on),
        vmapi: Some(End::Target),
        reserved: false,
        settings: SettingsMatch::Same,
        dated: true,
    };
    note(&mut record, Note::Power(crate::intent::Power { running: true, autoboot: true }));
    assert_eq!(next(&record, &facts), Next::GiveUp(Reason::NoCommonSnapshot));
    start(&mut record, Phase::Abort, "x", uuid::Uuid::nil(), now);
    assert_eq!(next(&record, &facts), Next::GiveUp(Reason::UseRollback));
}

#[test] // M26
fn a_failed_begin_that_made_a_target_is_aborted_and_not_begun_again() {
    let mut world = World::new(true, None);
    world.command(Action::Begin);
    until(&mut world, "create");
    world.disk(End::Target).unwrap().seen.hidden = false; // another VM of this uuid
    world.disk(End::Source).unwrap().seen.hidden = true; // so that the model does not count two
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Begin, State::Failed));
    assert_eq!(admit(world.record.as_ref(), Call::new(Action::Begin)), Err(Refusal::Active));
    world.command(Action::Abort);
    world.round(Fault::None);
    assert!(world.disk(End::Target).is_some(), "what is not ours stays");
}

#[test] // M180
fn what_the_migration_has_not_made_is_no_copy_and_stays() {
    // Somebody's datasets of the VM's name: nothing is ordered, and an abort ends it with nothing deleted.
    let mut world = World::new(true, None);
    world.target.in_the_way = vec!["zones/vm".into()];
    world.command(Action::Begin);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Begin, State::Failed));
    world.command(Action::Abort);
    runs(&mut world);
    assert!(world.record.is_none());
    assert!(world.orders.iter().all(|order| order == "place"), "{:?}", world.orders);
    // Somebody's hidden copy.
    let mut world = World::new(true, None);
    let seen = Copy { hidden: true, ..Copy::default() };
    world.target.copy = Some(super::model::Disk { seen, data: 7, kept: Vec::new() });
    world.command(Action::Begin);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Begin, State::Failed));
    world.command(Action::Abort);
    runs(&mut world);
    assert!(world.record.is_none() && world.target.copy.is_some());
    // A creation that has failed half way: no begin, sync or switch goes on with it, and the VM runs.
    let mut world = World::new(true, None);
    world.command(Action::Begin);
    until(&mut world, "create");
    world.disk(End::Target).unwrap().seen.half = true;
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Begin, State::Failed));
    let why = Reason::Half(End::Target);
    assert_eq!(world.record.as_ref().unwrap().error.as_deref(), Some(why.to_string().as_str()));
    for action in [Action::Sync, Action::Switch] {
        let mut world = after(&[Action::Begin, Action::Sync]);
        world.disk(End::Target).unwrap().seen.half = true;
        world.orders.clear();
        assert!(world.command(action));
        runs(&mut world);
        assert!(world.orders.iter().all(|order| !order.starts_with("s")), "{:?}", world.orders);
        assert!(world.disk(End::Source).unwrap().seen.running);
    }
}

#[test] // M19, R10
fn a_switch_that_fails_in_its_last_delta_restores_the_quota() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.command(Action::Switch);
    until(&mut world, "stop source");
    world.round(Fault::None); // the note
    world.round(Fault::Cut);
    assert!(world.disk(End::Source).unwrap().seen.quota_lifted);
    world.goes_down(End::Target);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Failed));
    let source = world.disk(End::Source).unwrap().seen.clone();
    assert!(source.running && source.autoboot && !source.quota_lifted);
}

#[test] // M22
fn a_source_that_answers_is_not_dead() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.goes_down(End::Source);
    world.declare_dead(End::Source);
    world.round(Fault::None);
    world.comes_up(End::Source);
    world.truth = world.disk(End::Source).unwrap().data;
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Failed));
    let source = world.disk(End::Source).unwrap().seen.clone();
    assert!(source.running && !source.hidden);
    let error = world.record.as_ref().unwrap().error.clone();
    assert_eq!(error.as_deref(), Some("the source's node answers: it is not dead"));
}

#[test] // M22
fn a_source_that_was_declared_dead_stays_off_whatever_is_commanded_later() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.goes_down(End::Source);
    world.declare_dead(End::Source);
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Switch, State::Successful));
    world.writes(End::Target);
    world.command(Action::Rollback);
    world.round(Fault::None);
    world.comes_up(End::Source);
    assert!(world.disk(End::Source).unwrap().seen.is_off());
    runs(&mut world);
    // It has the snapshot of the last sync, so that it gets what the target wrote.
    assert!(world.record.is_none() && world.disk(End::Source).unwrap().seen.running);
    // Where the source is given up by finalize, the record stays to tell it.
    let mut world = after(&[Action::Begin, Action::Sync]);
    world.goes_down(End::Source);
    world.declare_dead(End::Source);
    runs(&mut world);
    world.command(Action::Finalize);
    runs(&mut world);
    assert!(world.record.is_none() && world.past.is_some());
    world.comes_up(End::Source);
    world.check();
    assert_eq!(world.broken, None);
    assert!(world.disk(End::Source).unwrap().seen.is_off());
}

#[test] // M23
fn what_the_target_writes_after_it_was_sent_back_is_sent_again() {
    let mut world = after(&[Action::Begin, Action::Sync, Action::Switch]);
    world.command(Action::Rollback);
    until(&mut world, "send 3 from target");
    let disk = world.disk(End::Target).unwrap();
    (disk.seen.running, disk.seen.started_since_snapshot) = (true, true);
    world.writes(End::Target);
    runs(&mut world);
    assert!(world.orders.contains(&"send 4 from target".to_owned()), "{:?}", world.orders);
    assert!(world.record.is_none());
}

#[test] // M110
fn a_number_that_the_owner_has_in_a_name_is_not_used_and_one_that_he_takes_first_is_given_up() {
    let mut world = after(&[Action::Begin, Action::Sync]);
    for (source, target, want) in [
        (vec![], vec![], 2),
        (vec![(2, 2)], vec![], 3),
        (vec![(2, 5), (7, 7)], vec![(6, 6)], 8),
        (vec![(4, u32::MAX)], vec![], 2),
        (vec![(2, u32::MAX)], vec![], 2),
    ] {
        let copy = |taken: &Vec<(u32, u32)>, last| {
            let copy = Copy { taken: taken.clone(), last, ..Copy::default() };
            let vm_agent = VmAgent::Ours;
            Report::Node(Node { copy: Some(copy), vm_agent, ..Node::default() })
        };
        let facts = Facts {
            source: copy(&source, 1),
            target: copy(&target, 0),
            vmapi: None,
            reserved: false,
            settings: SettingsMatch::Same,
            dated: true,
        };
        assert_eq!(facts.unused_number(0), want, "{source:?} {target:?}");
    }
    world.command(Action::Sync);
    while world.intent().sending.is_none() {
        world.round(Fault::None);
    }
    assert_eq!(world.intent().sending, Some(2));
    world.disk(End::Source).unwrap().seen.taken = vec![(2, 9)];
    runs(&mut world);
    assert_eq!(state(&world), (Phase::Sync, State::Paused));
    assert_eq!(world.orders.last().unwrap(), "forget target but 10");
}

#[test] // M110
fn an_owner_who_takes_each_name_first_delays_a_sync_no_longer_than_sixteen_names() {
    // A thousand names ahead of the newest, each time: the numbers outrun him.
    for (ahead, want) in [(1_000_u32, State::Paused), (u32::MAX / 2, State::Failed)] {
        let mut world = after(&[Action::Begin, Action::Sync]);
        world.command(Action::Sync);
        let (mut last, mut names) = (None, 1_u32);
        for _ in 0..400 {
            if !matches!(world.record.as_ref().map(|it| it.state), Some(State::Running)) {
                break;
            }
            let sending = world.intent().sending;
            if sending.is_some() && sending != last {
                names = names.max(2).saturating_add(ahead);
                world.disk(End::Source).unwrap().seen.taken = vec![(2, names)];
                last = sending;
            }
            world.round(Fault::None);
        }
        assert_eq!(state(&world), (Phase::Sync, want), "{ahead}");
    }
}

#[test] // M196
fn a_vm_agent_that_reports_hidden_vms_destroyed_stops_a_switch_before_it_stops_the_vm() {
    for end in [End::Source, End::Target] {
        for vm_agent in [VmAgent::Deployed, VmAgent::Unknown] {
            let mut world = after(&[Action::Begin, Action::Sync]);
            // The agents were updated since.
            world.host(end).vm_agent = Some(vm_agent);
            let orders = world.orders.len();
            assert!(world.command(Action::Switch));
            runs(&mut world);
            let record = world.record.clone().unwrap();
            assert_eq!((record.phase, record.state), (Phase::Sync, State::Failed), "{end}");
            let error = record.error.clone().unwrap();
            assert!(error.contains(&format!("vm-agent on the {end}'s node")), "{error}");
            assert!(error.contains("--force"), "{error}");
            let given = &world.orders[orders..];
            assert!(
                !given.iter().any(|it| it.contains("stop") || it.contains("hide")),
                "{given:?}"
            );
            assert!(world.source.copy.as_ref().unwrap().seen.running);

            // Ours is installed, or an operator takes it upon himself.
            let mut forced = world.clone();
            world.host(end).vm_agent = None;
            let word =
                crate::intent::Confirmation { by: uuid::Uuid::nil(), at: record.created_timestamp };
            forced.record.as_mut().unwrap().intent.any_vm_agent = Some(word);
            for (world, is_forced) in [(&mut world, false), (&mut forced, true)] {
                assert!(world.command(Action::Switch), "{:?}", world.record);
                runs(world);
                let record = world.record.as_ref().unwrap();
                assert_eq!(record.state, State::Successful);
                let noted = record.progress_history.iter().any(|entry| {
                    entry
                        .message
                        .as_deref()
                        .is_some_and(|it| it.contains("forced, whichever vm-agent"))
                });
                assert_eq!(noted, is_forced);
            }
        }
    }
}
