// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The orders of each operation, where nothing goes wrong.

use pretty_assertions::assert_eq;

use super::model::{Fault, World};
use crate::intent::End;
use crate::machine::*;
use crate::record::{Phase, State};

/// Gives a command and does its rounds. Returns the orders.
fn orders(world: &mut World, action: Action) -> Vec<String> {
    world.orders.clear();
    assert!(world.command(action), "{action:?}");
    while world.is_busy() {
        world.round(Fault::None);
        world.check();
        assert_eq!(world.broken, None);
    }
    world.orders.clone()
}

#[test] // M17, R3, R6
fn the_order_of_each_operation() {
    let mut world = World::new(true, None);
    assert_eq!(orders(&mut world, Action::Begin), ["place", "hold target", "create", "date"]);
    let sync = ["send 1 from source", "quota source", "quota target"];
    assert_eq!(orders(&mut world, Action::Sync), sync);
    world.writes(End::Source);
    world.settings = SettingsMatch::Differ;
    let mut late = world.clone();
    let switch = [
        "bringover",
        "rehearse",
        "no autoboot source",
        "stop source",
        "send 2 from source",
        "quota source",
        "quota target",
        "forget source but 2",
        "forget target but 2",
        "reserve",
        "hold source",
        "hide source",
        "move record to target",
        "show target",
        "autoboot target",
        "boot target",
        "unreserve",
        "release target",
    ];
    assert_eq!(orders(&mut world, Action::Switch), switch);
    assert_eq!(world.planned, switch[2..], "the rehearsal plans what is done"); // M230
    // What changes while the VM stops is brought over when all of it was sent.
    late.orders.clear();
    assert!(late.command(Action::Switch));
    while !late.orders.iter().any(|it| it == "stop source") {
        late.round(Fault::None);
    }
    late.settings = SettingsMatch::Differ;
    while late.is_busy() {
        late.round(Fault::None);
    }
    let at = |name: &str| late.orders.iter().rposition(|it| it == name).unwrap();
    assert!(at("send 2 from source") < at("bringover") && at("bringover") < at("reserve"));
    world.writes(End::Target);
    let rollback = [
        "no autoboot target",
        "stop target",
        "hold target",
        "hide target",
        "send 3 from target",
        "quota source",
        "quota target",
        "forget source but 3",
        "forget target but 3",
        "move record to source",
        "show source",
        "autoboot source",
        "boot source",
        "release source",
        "delete target",
        "release target",
        "forget source but 0",
    ];
    let mut back = world.clone();
    assert_eq!(orders(&mut back, Action::Rollback), rollback);
    let finalize = ["delete source", "release source", "forget target but 0"];
    assert_eq!(orders(&mut world, Action::Finalize), finalize);
}

#[test] // M78
fn a_protection_against_deletion_goes_with_the_vm_and_back() {
    let both = Protection { zoneroot: true, delegated: true };
    let protect = |copy: &mut Copy, of| (copy.protection, copy.marked) = (of, of);
    let mut world = World::new(true, None);
    protect(&mut world.source.copy.as_mut().unwrap().seen, both);
    orders(&mut world, Action::Begin);
    orders(&mut world, Action::Sync);
    let mut dead = world.clone();
    let switch = orders(&mut world, Action::Switch);
    let at = |name: &str| switch.iter().position(|it| it == name);
    assert!(at("boot target") < at("protect target root data"), "{switch:?}");
    assert_eq!(world.target.copy.as_ref().unwrap().seen.protection, both);
    let mut back = world.clone();
    orders(&mut world, Action::Finalize);
    assert!(world.source.copy.is_none());
    // What was protected after the switch is so on the source too; nothing that was is not.
    protect(&mut back.source.copy.as_mut().unwrap().seen, Protection { delegated: false, ..both });
    let rollback = orders(&mut back, Action::Rollback);
    assert!(rollback.contains(&"protect source data".to_owned()), "{rollback:?}");
    assert_eq!(back.source.copy.as_ref().unwrap().seen.protection, both);
    assert!(back.target.copy.is_none());
    // Of a source that is dead the last stream has brought the snapshots.
    dead.goes_down(End::Source);
    let word = crate::intent::Confirmation {
        by: uuid::Uuid::nil(),
        at: crate::time::Time::from_millis(0),
    };
    assert!(dead.command(Action::Switch));
    dead.record.as_mut().unwrap().intent.source_dead = Some(word);
    while dead.is_busy() {
        dead.round(Fault::None);
    }
    assert_eq!(dead.target.copy.as_ref().unwrap().seen.protection, both);
}

#[test] // M17
fn a_stopped_vm_stays_stopped() {
    let mut world = World::new(false, None);
    for action in [Action::Begin, Action::Sync, Action::Switch] {
        let orders = orders(&mut world, action);
        assert!(!orders.iter().any(|it| it.contains("boot")), "{orders:?}");
    }
    // What never ran has nothing to send back.
    let orders = orders(&mut world, Action::Rollback);
    assert!(!orders.iter().any(|it| it.contains("send") || it.contains("boot")), "{orders:?}");
}

#[test] // R25
fn a_vm_that_was_made_anew_since_the_begin_is_left_where_it_is() {
    for before in [vec![Action::Begin], vec![Action::Begin, Action::Sync]] {
        for action in [Action::Sync, Action::Switch] {
            let mut world = World::new(true, None);
            for action in &before {
                orders(&mut world, *action);
            }
            world.settings = SettingsMatch::Remade;
            if !world.command(action) {
                continue; // nothing was synced yet
            }
            while world.is_busy() {
                world.round(Fault::None);
                world.check();
            }
            let record = world.record.clone().unwrap();
            assert_eq!(record.state, State::Failed, "{action:?}");
            assert_eq!(record.error, Some(Reason::Remade.to_string()));
            let source = &world.source.copy.as_ref().unwrap().seen;
            assert!(source.running && source.autoboot && !source.hidden, "{action:?}");
            orders(&mut world, Action::Abort);
            assert!(world.target.copy.is_none());
        }
    }
}

#[test] // M17
fn abort_removes_what_begin_and_sync_made() {
    let mut world = World::new(true, None);
    orders(&mut world, Action::Begin);
    orders(&mut world, Action::Sync);
    let abort = ["delete target", "release target", "forget source but 0"];
    assert_eq!(orders(&mut world, Action::Abort), abort);
    assert!(world.record.is_none() && world.target.copy.is_none());
}

#[test] // M18, R2
fn what_follows_by_itself() {
    let mut record = crate::samples::record(serde_json::json!({}));
    for (ending, automatic, scheduled, enough, want) in [
        (Ending::Begun, true, false, false, Some(Phase::Sync)),
        (Ending::Begun, false, true, false, Some(Phase::Sync)),
        (Ending::Begun, false, false, true, None),
        (Ending::Synced, true, false, false, Some(Phase::Sync)),
        (Ending::Synced, true, false, true, Some(Phase::Switch)),
        (Ending::Synced, false, false, true, None),
        (Ending::Synced, true, true, true, None),
        (Ending::Paused, true, false, false, None),
        (Ending::Failed("x".into()), true, false, true, None),
        (Ending::Switched, true, false, true, None),
    ] {
        let time = crate::time::Time::from_millis(0);
        (record.automatic, record.scheduled_timestamp) = (automatic, scheduled.then_some(time));
        assert_eq!(follow(&record, &ending, enough), want, "{ending:?} {automatic} {scheduled}");
    }
}

#[test] // M18
fn a_scheduled_migration_waits_for_its_time_after_a_sync_and_a_queued_one_for_its_turn() {
    let now = crate::time::Time::from_millis(0);
    let mut record =
        crate::samples::record(serde_json::json!({"phase": "sync", "state": "running"}));
    record.scheduled_timestamp = Some(now);
    assert_eq!(settle(&mut record, Ending::Synced, now), After::Stays);
    assert_eq!((record.state, record.num_sync_phases), (State::Scheduled, 1));
    queue(&mut record, Phase::Switch);
    assert_eq!((record.phase, record.state), (Phase::Switch, State::Queued));
    start(&mut record, Phase::Switch, "x", uuid::Uuid::nil(), now);
    assert_eq!(record.state, State::Running);
    assert!(record.started_timestamp.is_some());
}
