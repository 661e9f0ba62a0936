// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each guard found.

use super::guard::{Answer, Guard};
use super::reason::Reason;

/// What one guard found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub guard: Guard,
    pub answer: Answer,
    pub why: Reason,
}

impl Evidence {
    /// Returns the reason with the guard's name.
    pub fn reason(&self) -> Reason {
        Reason::Guard { guard: self.guard, why: Box::new(self.why.clone()) }
    }
}
