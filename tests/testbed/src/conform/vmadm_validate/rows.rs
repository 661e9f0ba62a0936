// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the simulated vmadm answers otherwise on purpose: rules with their reasons.

use serde_json::Value;

use super::super::tally::Tally;

/// One way of being other than what was recorded.
struct Deviation {
    reason: &'static str,
    /// It is known by what was asked, or by the row where one is meant.
    covers: fn(&Value) -> bool,
    /// Which differences it explains.
    explains: fn(&str) -> bool,
}

const ON_PURPOSE: [Deviation; 1] = [Deviation {
    reason: "the recording's `zfs get` answers any question with one word, which vmadm destroys as an origin",
    covers: |row| row["payload"]["remove_disks"].is_array(),
    explains: |difference| difference.starts_with("zfs: ") && difference.contains("origin\\t0"),
}];

/// The deviations that were met.
#[derive(Default)]
pub(super) struct Rows {
    met: [usize; ON_PURPOSE.len()],
}

impl Rows {
    /// Enters one row: what is left of its differences is a failure.
    pub(super) fn enter(
        &mut self,
        tally: &mut Tally,
        row: &Value,
        name: &str,
        mut differences: Vec<String>,
    ) {
        for (one, met) in ON_PURPOSE.iter().zip(&mut self.met).filter(|(one, _)| (one.covers)(row))
        {
            let before = differences.len();
            differences.retain(|difference| !(one.explains)(difference));
            if differences.len() < before {
                *met += 1;
                tally.notes.push(format!("deviates on purpose: {name}: {}", one.reason));
            }
        }
        tally.case(name, &differences);
    }

    /// A rule that nothing needs is a failure.
    pub(super) fn end(&self, tally: &mut Tally) {
        for (one, _) in ON_PURPOSE.iter().zip(self.met).filter(|(_, met)| *met == 0) {
            tally.failures.push(format!("FAIL it deviates no more: {}", one.reason));
        }
    }
}
