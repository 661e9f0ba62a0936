// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulator on a few seeds and crash points. `.ci/run` runs it on hundreds.

use std::path::Path;
use std::time::Duration;

use testbed::sim::{both, bugs, equivalence, points, regressions, run_seeds, witnesses};

#[test]
fn some_seeds_hold_and_what_happens_in_them_is_the_same_beside_a_busy_machine() {
    let seeds: Vec<u64> = (1..=3).collect();
    let (ran, again) = std::thread::scope(|scope| {
        // Two runs at once take the processors from each other.
        let [one, two] = [(); 2].map(|()| scope.spawn(|| run_seeds(&seeds, None, false)));
        (one.join().unwrap(), two.join().unwrap())
    });
    assert_eq!(ran.failed, 0, "the failing seeds are printed");
    assert_eq!(ran, again);
}

#[test]
#[ignore = "long: .ci/run has testbed sim --seeds 60 --regressions"]
fn seeds_that_failed_once_hold() {
    assert_eq!(run_seeds(&regressions(), None, false).failed, 0, "the failing seeds are printed");
}

/// A few of the places at which an agent can die, read stale or not see; `testbed sim
/// --crash-points` goes through all of them.
#[test]
fn an_agent_that_dies_reads_stale_or_misses_something_leaves_the_same_records() {
    let totals = points::enumerate(97).unwrap();
    println!("{}", totals.text);
    assert!(totals.points >= 5, "{}", totals.text);
    assert_eq!(totals.failed, 0, "the failing points are printed");
}

#[test]
fn the_same_life_delivered_whole_late_shuffled_or_thinned_ends_the_same() {
    equivalence::one(1).unwrap();
}

#[test]
fn two_machines_of_one_uuid_destroy_nothing_and_both_say_so() {
    both::hold(1).unwrap();
}

#[test] // S136, S137, W35, C43, F151
#[ignore = "minutes of processors: `.ci/run` has it as a step of its own"]
fn witnesses_of_a_zone_that_are_wrong_tell_and_delete_what_the_page_says() {
    let page = witnesses::page().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contract/witnesses.md");
    if std::env::var_os("WITNESSES").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), page, "WITNESSES=1 writes the page");
}

#[test] // S138, F153
fn vmapi_hears_of_a_halt_within_two_seconds_beside_tenants_with_slow_datasets() {
    let took = witnesses::halt_beside_slow_tenants().unwrap();
    assert!(took <= Duration::from_secs(2), "{took:?}");
}

/// Each deliberate bug is caught by some of the first seeds.
#[test]
#[ignore = "long: testbed sim --bugs --seeds 60 prints the table"]
fn deliberate_bugs_are_caught() {
    for &(name, bug) in bugs::BUGS {
        let caught = (1..=60).any(|seed| run_seeds(&[seed], Some(bug), false).failed > 0);
        assert!(caught, "{name} is not caught");
    }
}
