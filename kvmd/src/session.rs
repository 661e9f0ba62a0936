// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One connection to a monitor as a state machine without I/O: lines change its stage and history, and
//! the verdict comes at its end (K5).
//!
//! ```text
//!   AwaitGreeting ──greeting──► Negotiating ──return──► Watching
//!         └──────────────┬───────────┴─────────────────────┘
//!                        ▼ end of stream, everything read
//!                      judged
//! ```
//!
//! Without a greeting another client holds the monitor: the instance is connected but not watched.

use std::time::Duration;

use crate::history::History;
use crate::judge::{judge, user_by_shipped_rule};
use crate::qmp::{BadLine, Line, Message, parse_line};
use crate::verdict::Verdict;

/// The stage of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Connected; QEMU has not accepted.
    #[default]
    AwaitGreeting,
    /// Greeted; events do not come yet.
    Negotiating,
    /// Events come.
    Watching,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub stage: Stage,
    /// What QEMU said.
    pub history: History,
    /// QEMU's version, if it told one.
    pub version: Option<String>,
    /// Lines that could not be parsed.
    pub bad_lines: u64,
}

impl Session {
    /// Makes a session with the history of an earlier connection to the same process.
    pub fn resumed(history: History) -> Self {
        Self { history, ..Self::default() }
    }

    /// Processes a line that came at `at`.
    /// Fails if it cannot be parsed: it is counted, and the session continues.
    pub fn line(&mut self, at: Duration, line: &Line) -> Result<(), BadLine> {
        let parsed = match line {
            Err(too_long) => Err((*too_long).into()),
            Ok(bytes) if bytes.is_empty() => return Ok(()),
            Ok(bytes) => {
                self.history.raw(bytes);
                parse_line(bytes)
            }
        };
        match parsed {
            Ok(message) => self.message(at, &message),
            Err(bad) => {
                self.bad_lines += 1;
                return Err(bad);
            }
        }
        Ok(())
    }

    fn message(&mut self, at: Duration, message: &Message) {
        match message {
            Message::Greeting { version } => {
                self.version.clone_from(version);
                self.stage = self.stage.max(Stage::Negotiating);
            }
            // The first command that succeeds is the negotiation.
            Message::Return { status } => {
                self.stage = Stage::Watching;
                if let Some(status) = status {
                    self.history.status(status);
                }
            }
            Message::Event(event) => {
                self.stage = Stage::Watching;
                self.history.event(at, event);
            }
            Message::Error { .. } | Message::Other => {}
        }
    }

    /// Returns our rule's verdict on a connection that ended at `at`.
    pub fn verdict(&self, at: Duration, window: Duration) -> Verdict {
        judge(&self.history, self.stage == Stage::Watching, at, window)
    }

    /// Returns the shipped rule's verdict.
    pub fn user_by_shipped_rule(&self) -> bool {
        user_by_shipped_rule(&self.history)
    }
}
