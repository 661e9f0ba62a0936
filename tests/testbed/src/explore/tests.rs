// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use std::sync::OnceLock;

use super::bugs::Bug;
use super::cases::{failing, single};
use super::points::{Fault, Moment, Planned};
use super::runs::{Case, Ran, run};
use super::world::Shape;
use super::{asks_when_back, noticed, plain};
use crate::moving::operator::{LOOKED, Story};

/// How each story runs without faults.
fn undisturbed() -> &'static [(Story, Ran)] {
    static PLAIN: OnceLock<Vec<(Story, Ran)>> = OnceLock::new();
    PLAIN.get_or_init(|| plain(Shape::default()).unwrap())
}

#[test] // R2 R3 R6 M17
fn a_vm_arrives_or_stays_as_each_story_says() {
    assert!(undisturbed().iter().all(|(_, ran)| ran.labels.len() > 100));
}

#[test] // M105
fn nobody_has_to_go_and_look_at_a_node_that_is_off_and_was_heard_before() {
    for (story, ran) in undisturbed() {
        let looked = ran.notes.iter().any(|note| note.contains(LOOKED));
        assert_eq!(looked, *story == Story::Unwell, "{story:?}: {:?}", ran.notes);
    }
}

#[test] // M10 M11 M258
fn nothing_is_lost_whatever_dies_stops_or_is_lost() {
    let cases = single(undisturbed(), Shape::default());
    assert!(cases.iter().any(|case| matches!(case.planned[0].fault, Fault::Reboots(_))));
    for case in cases.iter().take(8) {
        let ran = run(case).unwrap();
        assert_eq!(ran.happened, 1, "{case:?}");
        assert!(ran.faults.is_empty(), "{case:?}: {:?}\n{}", ran.faults, ran.notes.join("\n"));
    }
}

#[test] // M63
fn an_address_that_is_reserved_late_is_free_in_the_end() {
    let is_late_reservation = |case: &&Case| {
        let Planned { at, fault, .. } = case.planned[0];
        let (_, plain) = undisturbed().iter().find(|(story, _)| *story == case.story).unwrap();
        fault == Fault::Late && plain.labels[at].contains("PUT napi.sim")
    };
    let cases = single(undisturbed(), Shape::default());
    let cases: Vec<&Case> = cases.iter().filter(is_late_reservation).collect();
    assert!(cases.len() > 4, "{cases:?}");
    for case in cases {
        let ran = run(case).unwrap();
        assert_eq!(ran.happened, 1, "{case:?}");
        assert!(ran.faults.is_empty(), "{case:?}: {:?}\n{}", ran.faults, ran.notes.join("\n"));
    }
}

#[test] // M123 M124 M125 M174
fn a_migration_ends_whatever_store_the_services_start_with() {
    let story = Story::CutOff;
    let (_, plain) = undisturbed().iter().find(|(it, _)| *it == story).unwrap();
    let shows = plain.labels.iter().position(|label| label.ends_with("agent-target/orders show"));
    for (at, moment) in [
        (shows.unwrap(), Moment::After),
        // That its node was declared dead is lost when the source's agent is about to hear it.
        (asks_when_back(plain).unwrap(), Moment::Before),
    ] {
        for fault in [Fault::Empty, Fault::Older(25)] {
            let planned = vec![Planned { at, moment, fault }];
            let case = Case { story, planned, shape: Shape::default() };
            let ran = run(&case).unwrap();
            assert_eq!(ran.happened, 1, "{case:?}");
            assert!(ran.faults.is_empty(), "{case:?}: {:?}\n{}", ran.faults, ran.notes.join("\n"));
        }
    }
}

#[test] // M102 M120
fn a_copy_that_nobody_watches_and_signs_of_life_that_do_not_count_are_noticed() {
    for bug in [
        Bug::NobodyWatches,
        Bug::ErrorIsDeath,
        Bug::HeartbeatIgnored,
        Bug::EmptyStoreAnswers,
        Bug::InsteadForgotten,
        Bug::GoneIsThere,
    ] {
        assert!(noticed(bug, undisturbed()).unwrap().is_some(), "{}", bug.name());
    }
}

#[test] // M48 M100
fn a_node_whose_boot_does_not_import_the_agent_runs_a_copy_that_was_replaced() {
    let by = noticed(Bug::ManifestNotImported, undisturbed()).unwrap();
    assert!(by.is_some_and(|by| by.contains("P13")));
}

#[test] // M258
fn a_switch_that_fails_costs_little_and_one_that_costs_more_is_noticed() {
    let switches = failing(undisturbed(), Shape::default());
    assert!(switches.len() > 20, "{switches:?}");
    let mut failed = 0;
    for case in &switches[..4] {
        let ran = run(case).unwrap();
        assert!(ran.faults.is_empty(), "{case:?}: {:?}\n{}", ran.faults, ran.notes.join("\n"));
        failed += ran.failed_switches.len();
    }
    assert!(failed > 0);
    let by = noticed(Bug::BootsLate, undisturbed()).unwrap();
    assert!(by.is_some_and(|by| by.contains("M258")));
}

#[test] // M10
fn a_target_that_boots_early_and_a_quota_that_stays_lifted_are_noticed() {
    for bug in [Bug::BootedBeforeMove, Bug::QuotaNotRestored] {
        assert!(noticed(bug, undisturbed()).unwrap().is_some(), "{}", bug.name());
    }
}

#[test] // M256
fn what_is_destroyed_that_no_migration_made_is_noticed() {
    let by = noticed(Bug::DestroyedByName, undisturbed()).unwrap();
    assert!(by.is_some_and(|by| by.contains("M256") && by.contains("zones/elsewhere")));
}

#[test] // M257
fn a_hand_that_boots_the_hidden_copy_is_told_and_ended_in_each_phase() {
    let (story, plain) = &undisturbed()[0];
    for command in 1..plain.marks.len() - 1 {
        let at = (plain.marks[command] + plain.marks[command + 1]) / 2;
        let planned = vec![Planned { at, moment: Moment::Before, fault: Fault::Hand }];
        let ran = run(&Case { story: *story, planned, shape: Shape::default() }).unwrap();
        assert_eq!(ran.happened, 1, "{at}");
        assert!(ran.faults.is_empty(), "{at}: {:?}\n{}", ran.faults, ran.notes.join("\n"));
    }
}

#[test]
#[ignore = "104 runs: minutes"]
fn the_table_of_phases_and_faults_is_what_the_page_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/migration-faults.md");
    let page = std::fs::read_to_string(file).unwrap();
    let table = super::table::table(undisturbed()).unwrap();
    assert!(page.ends_with(&format!("\n\n{table}")), "the page differs from this:\n{table}");
}
