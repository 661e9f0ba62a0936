// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulator: the first seeds, those that failed once, and every deliberate bug.

#![allow(clippy::unwrap_used)] // a test may stop at once

use testbed::sim::{REGRESSIONS, bugs, run_seeds};

#[test]
fn some_seeds_hold() {
    let seeds: Vec<u64> = (1..=12).collect();
    assert_eq!(run_seeds(&seeds, None, false), 0, "the failing seeds are printed");
}

#[test]
fn seeds_that_failed_once_hold() {
    let seeds: Vec<u64> = REGRESSIONS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(run_seeds(&seeds, None, false), 0, "the failing seeds are printed");
}

/// Each deliberate bug is caught by some of the first seeds.
#[test]
#[ignore = "long: cargo test -p testbed --test sim -- --ignored --nocapture deliberate"]
fn deliberate_bugs_are_caught() {
    for (name, bug) in bugs::BUGS {
        let caught = (1..=30).find(|seed| run_seeds(&[*seed], Some(bug), false) > 0);
        println!(
            "{name}: {}",
            caught.map_or("NOT CAUGHT".to_owned(), |n| format!("caught by seed {n}"))
        );
        assert!(caught.is_some(), "{name} is not caught");
    }
}
