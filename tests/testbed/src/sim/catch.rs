// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which seed notices each deliberate bug.

use std::process::ExitCode;

use super::bugs::BUGS;
use super::runs::one;

/// Puts each bug in and runs seeds until one notices it: prints a table, fails if any gets by.
pub fn run(from: u64, seeds: u64) -> ExitCode {
    println!("| Bug | Seeds | Seconds | Noticed as |\n|---|---|---|---|");
    let mut missed = 0;
    for &(name, bug) in BUGS {
        let began = tokio::time::Instant::now();
        let noticed = (from..from.saturating_add(seeds))
            .find_map(|seed| Some((seed, one(seed, Some(bug)).0.err()?)));
        let took = began.elapsed().as_secs_f64();
        match noticed {
            Some((seed, error)) => {
                let promise = error.to_string();
                let promise = promise.split(':').next().unwrap_or_default().to_owned();
                println!("| `{name}` | {} | {took:.1} | {promise} |", seed + 1 - from);
            }
            None => {
                missed += 1;
                println!("| `{name}` | none of {seeds} | {took:.1} | |");
            }
        }
    }
    println!("{} noticed, {missed} missed", BUGS.len() - missed);
    ExitCode::from(u8::from(missed > 0))
}
