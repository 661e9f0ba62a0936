// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a person does by hand meanwhile: wherever a migration stands, and whatever is on both nodes and in VMAPI, one
//! command ends it.

use super::model::{Fault, World};
use crate::intent::{Confirmation, End, Remedy};
use crate::machine::*;
use crate::record::{Phase, State, is_over};
use crate::time::Time;

/// A command that fails: after which order, and by which node.
type Fails = (Action, &'static str, End);

/// Where a migration stands: the commands that went well, and one that failed.
const STANDS: [(&str, &[Action], Option<Fails>); 9] = [
    ("begun", &[Action::Begin], None),
    ("synced", &[Action::Begin, Action::Sync], None),
    (
        "sync failed",
        &[Action::Begin, Action::Sync],
        Some((Action::Sync, "send 2 from source", End::Target)),
    ),
    (
        "switch stalled",
        &[Action::Begin, Action::Sync],
        Some((Action::Switch, "hide source", End::Source)),
    ),
    (
        "switch failed when shown",
        &[Action::Begin, Action::Sync],
        Some((Action::Switch, "show target", End::Target)),
    ),
    ("switched", &[Action::Begin, Action::Sync, Action::Switch], None),
    (
        "rollback failed",
        &[Action::Begin, Action::Sync, Action::Switch],
        Some((Action::Rollback, "stop target", End::Target)),
    ),
    (
        "rollback failed when shown",
        &[Action::Begin, Action::Sync, Action::Switch],
        Some((Action::Rollback, "show source", End::Source)),
    ),
    (
        "abort failed",
        &[Action::Begin, Action::Sync],
        Some((Action::Abort, "delete target", End::Target)),
    ),
];

/// What is done by hand.
const HANDS: [&str; 16] = [
    "nothing",
    "source deleted",
    "target deleted",
    "both deleted",
    "source destroyed",
    "target destroyed",
    "source booted",
    "target booted",
    "source halted",
    "target halted",
    "source hidden",
    "target shown",
    "source rolled back",
    "target rolled back",
    "remade",
    "moved in VMAPI",
];

fn runs(world: &mut World) {
    for _ in 0..400 {
        if !world.is_busy() {
            return;
        }
        world.round(Fault::None);
    }
    panic!("it goes on for ever");
}

fn stands(good: &[Action], bad: Option<Fails>) -> World {
    let mut world = World::new(true, None);
    for action in good {
        assert!(world.command(*action), "{action:?}");
        runs(&mut world);
    }
    let Some((action, order, end)) = bad else { return world };
    assert!(world.command(action), "{action:?}");
    if order == "delete target" {
        world.refuses_deletion = true;
        runs(&mut world);
        world.refuses_deletion = false;
        return world;
    }
    while world.orders.last().is_none_or(|last| last != order) {
        world.round(Fault::None);
    }
    world.goes_down(end);
    runs(&mut world);
    world.comes_up(end);
    assert!(world.record.is_some(), "{action:?} was done");
    world
}

fn does(world: &mut World, hand: &str) {
    let (end, what) = match hand.split_once(' ') {
        Some(("source", what)) => (End::Source, what),
        Some(("target", what)) => (End::Target, what),
        _ => (End::Source, hand),
    };
    match what {
        "deleted" => world.host(end).copy = None,
        "both deleted" => (world.source.copy, world.target.copy) = (None, None),
        "remade" => world.settings = SettingsMatch::Remade,
        "moved in VMAPI" => world.vmapi = world.vmapi.other(),
        "rolled back" => {
            if let Some(disk) = world.disk(end) {
                disk.seen.snapshots.clear();
            }
        }
        _ => {
            let Some(disk) = world.disk(end) else { return };
            match what {
                "destroyed" => {
                    (disk.seen.bare, disk.seen.running) = (true, false);
                    disk.seen.snapshots.clear();
                }
                "booted" => (disk.seen.running, disk.seen.started_since_snapshot) = (true, true),
                "halted" => disk.seen.running = false,
                "hidden" => disk.seen.hidden = true,
                "shown" => disk.seen.hidden = false,
                _ => {}
            }
        }
    }
}

/// The commands that people are told to give.
const VERBS: [&str; 7] =
    ["abort", "switch", "finalize", "rollback", "rollback --discard", "rescue", "abort --force"];

/// The word of a person that something may be lost.
fn discards(world: &mut World) {
    let word = Confirmation { by: uuid::Uuid::nil(), at: Time::from_millis(0) };
    world.record.as_mut().unwrap().intent.discard = Some(word);
}

/// Gives a command, and finalizes what it switched. Returns true if the migration is over then, with nothing left of
/// it.
fn ends(world: &World, hand: &str, verb: &str) -> bool {
    let mut world = world.clone();
    let never_synced = world.record.as_ref().is_some_and(|it| it.num_sync_phases == 0);
    let action = Action::parse(verb.split(' ').next().unwrap()).unwrap();
    if !world.command(action) {
        return false;
    }
    if verb.contains(" --") {
        discards(&mut world);
    }
    runs(&mut world);
    let has_switched = action == Action::Switch
        && world.record.as_ref().is_some_and(|it| it.state == State::Successful);
    if has_switched && world.command(Action::Finalize) {
        runs(&mut world);
    }
    let is_over = world.record.as_ref().is_none_or(is_over);
    let copies: Vec<End> =
        [End::Source, End::Target].into_iter().filter(|end| world.disk(*end).is_some()).collect();
    let may_go = hand == "both deleted" || verb == "abort --force" || never_synced;
    let is_clean = match copies[..] {
        [] => may_go,
        // A copy that a person has shown is not the migration's.
        _ if hand == "target shown" && verb == "abort --force" => return is_over,
        [end] => {
            let seen = world.disk(end).unwrap().seen.clone();
            let is_whole = may_go || !seen.bare;
            is_whole
                && !seen.hidden
                && seen.snapshots.is_empty()
                && !seen.quota_lifted
                && world.vmapi == end
        }
        _ => false,
    };
    is_over && is_clean && !world.source.held && !world.target.held && !world.reserved
}

/// The command that people are told to give.
fn told(stand: &str, hand: &str) -> &'static str {
    let is_shown = matches!(stand, "switch failed when shown" | "switched" | "rollback failed");
    match (stand, hand) {
        ("begun", "source deleted" | "both deleted" | "source destroyed") => "abort",
        (_, "source deleted" | "both deleted") => "rescue",
        (_, "target deleted" | "target destroyed") if is_shown => "rescue",
        (_, "source destroyed") if !is_shown => "rescue",
        ("switched", "source booted" | "moved in VMAPI") => "rollback",
        ("switched", _) => "finalize",
        _ if is_shown => "switch",
        ("rollback failed when shown", _) => "rollback",
        ("switch stalled", "target shown") => "abort",
        (_, "target shown") => "abort --force",
        _ => "abort",
    }
}

#[test] // M111, P14
fn from_wherever_it_stands_and_whatever_was_done_by_hand_one_command_ends_it() {
    let mut table = String::new();
    let mut is_wrong = false;
    for (stand, good, bad) in STANDS {
        let world = stands(good, bad);
        for hand in HANDS {
            let mut world = world.clone();
            does(&mut world, hand);
            let all: Vec<&str> =
                VERBS.into_iter().filter(|verb| ends(&world, hand, verb)).collect();
            let told = told(stand, hand);
            is_wrong |= !all.contains(&told);
            table += &format!("{stand} | {hand} | {told} | {}\n", all.join(", "));
        }
    }
    assert!(!is_wrong, "{table}");
}

#[test] // M111
fn a_deletion_that_is_refused_lets_go_of_the_vm_and_a_second_abort_ends_it() {
    let mut world = stands(&[Action::Begin, Action::Sync], None);
    world.refuses_deletion = true;
    assert!(world.command(Action::Abort));
    runs(&mut world);
    let record = world.record.clone().unwrap();
    assert_eq!((record.phase, record.state), (Phase::Abort, State::Failed));
    assert_eq!(record.error.as_deref(), Some("the copy cannot be deleted"));
    assert!(record.intent.let_go);
    let source = world.disk(End::Source).unwrap().seen.clone();
    assert!(
        source.running && !source.hidden && source.snapshots.is_empty() && !source.quota_lifted
    );
    let mut forced = world.clone();
    assert!(forced.command(Action::Abort));
    discards(&mut forced);
    runs(&mut forced);
    assert!(forced.record.is_none());
    let past = forced.past.unwrap();
    assert_eq!(past.state, State::Aborted);
    assert_eq!(past.error.as_deref(), Some("the copy cannot be deleted"));
    world.refuses_deletion = false;
    assert!(ends(&world, "nothing", "abort"));
}

#[test] // M111
fn the_last_copy_goes_by_a_persons_word_alone_and_a_rescue_takes_nothing_from_a_living_vm() {
    let mut world = stands(&[Action::Begin, Action::Sync], None);
    world.source.copy = None;
    for action in [Action::Abort, Action::Abort, Action::Switch] {
        world.command(action);
        runs(&mut world);
        assert!(world.target.copy.is_some(), "{action:?}");
    }
    for (good, state) in [
        (vec![Action::Begin, Action::Sync], State::Paused),
        (vec![Action::Begin, Action::Sync, Action::Switch], State::Successful),
    ] {
        let mut world = stands(&good, None);
        let before = (world.source.copy.clone(), world.target.copy.clone());
        assert!(world.command(Action::Rescue));
        runs(&mut world);
        assert_eq!(world.record.as_ref().unwrap().state, state);
        assert!((world.source.copy, world.target.copy) == before, "{good:?}");
    }
    let mut empty = stands(&[Action::Begin], None);
    empty.source.copy = None;
    assert!(empty.command(Action::Rescue));
    runs(&mut empty);
    assert!(empty.target.copy.unwrap().seen.hidden);
}

#[test] // M111
fn no_switch_goes_to_a_copy_without_datasets_and_a_sync_sends_them_again() {
    let mut world = stands(&[Action::Begin, Action::Sync], None);
    does(&mut world, "target destroyed");
    world.orders.clear();
    assert!(world.command(Action::Switch));
    runs(&mut world);
    assert!(!world.orders.iter().any(|order| order == "stop source"), "{:?}", world.orders);
    let (record, why) = (world.record.as_ref().unwrap(), Reason::Bare(End::Target));
    assert_eq!(record.error.as_deref(), Some(why.to_string().as_str()));
    assert_eq!(why.remedy(record), Some(Remedy::Resend));
    let source = &world.source.copy.as_ref().unwrap().seen;
    assert!(source.running && !source.hidden);
    assert!(world.command(Action::Sync));
    runs(&mut world);
    assert_eq!(world.record.as_ref().unwrap().state, State::Paused);
    assert!(ends(&world, "nothing", "switch"));
}

#[test] // M111
fn a_finalize_first_stops_and_hides_the_copy_that_was_replaced() {
    for hand in ["source booted", "source shown"] {
        let mut world = stands(&[Action::Begin, Action::Sync, Action::Switch], None);
        match hand {
            "source shown" => world.disk(End::Source).unwrap().seen.hidden = false,
            hand => does(&mut world, hand),
        }
        world.orders.clear();
        assert!(world.command(Action::Finalize));
        world.round(Fault::None);
        let first = if hand == "source shown" { "hide source" } else { "stop source" };
        assert_eq!(world.orders, [first], "{hand}");
        assert!(ends(&world, hand, "finalize"), "{hand}");
        // Whatever VMAPI says: its record is moved back, once nothing runs there.
        does(&mut world, "source booted");
        world.vmapi = End::Source;
        world.orders.clear();
        runs(&mut world);
        assert_eq!(world.orders.first().map(String::as_str), Some("stop source"), "{hand}");
        assert_eq!(world.vmapi, End::Target, "{hand}");
        assert!(world.disk(End::Source).is_none(), "{hand}: the copy that was replaced has gone");
    }
}

#[test] // M111
fn a_copy_that_people_booted_because_its_source_is_lost_becomes_the_vm() {
    let mut world = stands(&[Action::Begin, Action::Sync], None);
    world.goes_down(End::Source);
    does(&mut world, "target booted");
    let word = Confirmation { by: uuid::Uuid::nil(), at: Time::from_millis(0) };
    assert!(world.command(Action::Switch));
    world.record.as_mut().unwrap().intent.source_dead = Some(word);
    runs(&mut world);
    let record = world.record.as_ref().unwrap();
    assert_eq!((record.state, &record.error), (State::Successful, &None));
    let target = &world.target.copy.as_ref().unwrap().seen;
    assert!(target.running && !target.hidden);
}

#[test] // M111
fn no_rollback_goes_to_a_copy_without_datasets() {
    for is_discarded in [false, true] {
        let mut world = stands(&[Action::Begin, Action::Sync, Action::Switch], None);
        does(&mut world, "source destroyed");
        assert!(world.command(Action::Rollback));
        if is_discarded {
            discards(&mut world);
        }
        runs(&mut world);
        let target = &world.target.copy.as_ref().unwrap().seen;
        assert!(target.running && !target.hidden);
        let (record, why) = (world.record.as_ref().unwrap(), Reason::Bare(End::Source));
        assert_eq!(record.error.as_deref(), Some(why.to_string().as_str()));
        assert_eq!(why.remedy(record), Some(Remedy::Rescue));
        assert!(ends(&world, "source destroyed", "rescue"));
    }
}
