// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a comparison comes to.

use anyhow::bail;

use super::transcript::Group;

/// The cases of one comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many passed.
    pub passed: usize,
    /// One text for each that failed: where, expected, got.
    pub failures: Vec<String>,
    /// What else is to be told.
    pub notes: Vec<String>,
}

impl Tally {
    /// Says on stderr which group begins: some take minutes, or hang.
    pub(super) fn begins(&self, group: &Group) {
        let (passed, failed) = (self.passed, self.failures.len());
        eprintln!(
            "{passed} passed, {failed} failed; next: {}, {} steps",
            group.name,
            group.steps.len()
        );
    }

    /// Counts one case; `faults` holds what is wrong with it, the first of them is shown.
    pub(super) fn case(&mut self, place: &str, faults: &[String]) {
        match faults {
            [] => self.passed += 1,
            [one] => self.failures.push(format!("FAIL {place}: {one}")),
            [first, rest @ ..] => {
                self.failures.push(format!("FAIL {place}: {first} (and {} more)", rest.len()));
            }
        }
    }
}

/// For kinds without flags.
pub(super) fn no_flags(flags: &[String]) -> anyhow::Result<()> {
    match flags {
        [] => Ok(()),
        [flag, ..] => bail!("unknown flag {flag}"),
    }
}

/// For kinds whose only flag is `--only GROUP`.
pub(super) fn only(flags: &[String]) -> anyhow::Result<Option<&str>> {
    match flags {
        [] => Ok(None),
        [flag, group] if flag == "--only" => Ok(Some(group)),
        _ => bail!("unknown flags {flags:?}; there is --only GROUP"),
    }
}
