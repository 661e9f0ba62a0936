// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One connection to one monitor, as a machine without I/O: lines in, stage and history changed,
//! a verdict at the end and not before (K5).
//!
//! ```text
//!   AwaitGreeting ──greeting──► Negotiating ──return──► Watching
//!         └──────────────┬───────────┴─────────────────────┘
//!                        ▼ end of stream, everything read
//!                      judged
//! ```
//!
//! Without the greeting somebody else holds the monitor and nothing would come here: such an
//! instance is connected and yet unwatched.

use std::time::Duration;

use crate::history::History;
use crate::judge::{judge, user_by_shipped_rule};
use crate::qmp::{BadLine, Line, Message, parse_line};
use crate::verdict::Verdict;

/// How far a connection is.
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
    /// How far it is.
    pub stage: Stage,
    /// What was said.
    pub history: History,
    /// QEMU's version, where it told.
    pub version: Option<String>,
    /// Lines that could not be understood.
    pub bad_lines: u64,
}

impl Session {
    /// A connection that goes on with what an earlier one to the same process heard.
    pub fn resumed(history: History) -> Self {
        Self { history, ..Self::default() }
    }

    /// Takes in a line that came at `at`.
    ///
    /// # Errors
    /// When it cannot be understood; it is counted and the session goes on.
    pub fn line(&mut self, at: Duration, line: &Line) -> Result<(), BadLine> {
        let parsed = match line {
            Line::TooLong => Err(BadLine::TooLong),
            Line::Whole(bytes) if bytes.is_empty() => return Ok(()),
            Line::Whole(bytes) => {
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
            // Before the negotiation nothing but the negotiation succeeds.
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

    /// The verdict of our rule on a connection that ended at `at`.
    pub fn verdict(&self, at: Duration, window: Duration) -> Verdict {
        judge(&self.history, self.stage == Stage::Watching, at, window)
    }

    /// The verdict of the shipped rule.
    pub fn user_by_shipped_rule(&self) -> bool {
        user_by_shipped_rule(&self.history)
    }
}
