// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What came of a story.

use super::screen::{Screen, Voice};

/// What came of a story.
#[derive(Debug, Default)]
pub struct Outcome {
    checks: Vec<(String, bool)>,
}

impl Outcome {
    /// Prints a check and keeps it.
    pub(super) fn add(&mut self, screen: &Screen, text: String, good: bool) {
        screen.say(Voice::Lab, &format!("{} {text}", if good { "ok  " } else { "FAIL" }));
        self.checks.push((text, good));
    }

    /// Returns true if every check passed.
    pub fn is_good(&self) -> bool {
        self.checks.iter().all(|(_, good)| *good)
    }

    /// The summary: how many came true, and which did not.
    pub fn summary(&self) -> String {
        let failed: Vec<&str> =
            self.checks.iter().filter(|(_, good)| !good).map(|(text, _)| text.as_str()).collect();
        let (good, all) = (self.checks.len() - failed.len(), self.checks.len());
        match failed.as_slice() {
            [] => format!("{good} of {all} checks came true"),
            failed => format!("{good} of {all} checks came true, not: {}", failed.join("; ")),
        }
    }
}
