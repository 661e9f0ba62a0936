// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The orders of each operation, where nothing goes wrong.

use pretty_assertions::assert_eq;

use super::model::{Fault, World};
use crate::journal::End;
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
    assert_eq!(orders(&mut world, Action::Begin), ["place", "hold target", "create"]);
    let sync = ["send 1 from source", "quota source", "quota target"];
    assert_eq!(orders(&mut world, Action::Sync), sync);
    world.writes(End::Source);
    world.same_object = false;
    let switch = [
        "no autoboot source",
        "stop source",
        "send 2 from source",
        "quota source",
        "quota target",
        "forget source but 2",
        "forget target but 2",
        "bringover",
        "reserve",
        "hold source",
        "hide source",
        "move record to target",
        "show target",
        "release target",
        "autoboot target",
        "boot target",
        "unreserve",
    ];
    assert_eq!(orders(&mut world, Action::Switch), switch);
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
        "release source",
        "autoboot source",
        "boot source",
        "delete target",
        "release target",
        "forget source but 0",
    ];
    let mut back = world.clone();
    assert_eq!(orders(&mut back, Action::Rollback), rollback);
    let finalize = ["delete source", "release source", "forget target but 0"];
    assert_eq!(orders(&mut world, Action::Finalize), finalize);
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
    for (phase, state, automatic, scheduled, enough, want) in [
        (Phase::Begin, State::Paused, true, false, false, Some(Phase::Sync)),
        (Phase::Begin, State::Paused, false, true, false, Some(Phase::Sync)),
        (Phase::Begin, State::Paused, false, false, true, None),
        (Phase::Sync, State::Paused, true, false, false, Some(Phase::Sync)),
        (Phase::Sync, State::Paused, true, false, true, Some(Phase::Switch)),
        (Phase::Sync, State::Paused, false, false, true, None),
        (Phase::Sync, State::Paused, true, true, true, None),
        (Phase::Sync, State::Failed, true, false, true, None),
        (Phase::Switch, State::Successful, true, false, true, None),
    ] {
        (record.phase, record.state, record.automatic) = (phase, state, automatic);
        let time = crate::time::Time::from_millis(0);
        record.scheduled_timestamp = scheduled.then_some(time);
        assert_eq!(follow(&record, enough), want, "{phase:?} {state:?} {automatic} {scheduled}");
    }
}
