// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Says what a run does, a line every few seconds, on stderr.

use std::time::Duration;

use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    said: Option<Instant>,
}

impl Progress {
    pub(super) fn begin() -> Progress {
        Progress { began: Instant::now(), said: None }
    }

    /// Whether a line is due.
    pub(super) fn is_due(&self) -> bool {
        self.said.is_none_or(|said| said.elapsed() >= EVERY)
    }

    /// Says this, unless something was said a moment ago.
    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        if self.is_due() {
            self.said = Some(Instant::now());
            eprintln!("{:>4} s: {}", self.began.elapsed().as_secs(), text());
        }
    }

    /// Begins another part of the run.
    pub(super) fn goes_on_with(&mut self, what: &str) {
        self.said = None;
        self.say(|| what.to_owned());
    }
}
