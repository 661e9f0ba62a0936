// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The states of a volume, and their names on the wire.

use std::fmt;
use std::str::FromStr;

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Creating,
    Ready,
    Failed,
    Deleting,
    RollingBack,
}

impl State {
    /// All states; the deployed service has the first four.
    pub const ALL: [State; 5] =
        [State::Creating, State::Ready, State::Failed, State::Deleting, State::RollingBack];

    /// Returns its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            State::Creating => "creating",
            State::Ready => "ready",
            State::Failed => "failed",
            State::Deleting => "deleting",
            State::RollingBack => "rolling_back",
        }
    }

    /// Returns true if a volume in this state has its name to itself.
    pub fn holds_name(self) -> bool {
        matches!(self, State::Creating | State::Ready | State::RollingBack)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(text: &str) -> Result<State, ()> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or(())
    }
}
