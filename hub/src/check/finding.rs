// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a check found.

/// Whether a belief is true here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is true here.
    Holds,
    /// It is false here.
    Fails,
    /// It cannot be told here.
    Unknown,
}

impl Verdict {
    /// Returns the word that people and the report have for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "FALSE",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A belief with what was found of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The belief's number in the ledger.
    pub belief: &'static str,
    /// Whether it is true here.
    pub verdict: Verdict,
    /// What was counted, or why it is false or cannot be told. Without names, addresses and metadata.
    pub seen: String,
}

impl Finding {
    /// It is true here.
    pub fn holds(belief: &'static str, seen: impl Into<String>) -> Finding {
        Finding { belief, verdict: Verdict::Holds, seen: seen.into() }
    }

    /// It is false here.
    pub fn fails(belief: &'static str, seen: impl Into<String>) -> Finding {
        Finding { belief, verdict: Verdict::Fails, seen: seen.into() }
    }

    /// It cannot be told here.
    pub fn unknown(belief: &'static str, seen: impl Into<String>) -> Finding {
        Finding { belief, verdict: Verdict::Unknown, seen: seen.into() }
    }

    /// It is true if there is nothing against it.
    pub fn unless(belief: &'static str, against: &[String], seen: impl Into<String>) -> Finding {
        match against {
            [] => Finding::holds(belief, seen),
            against => Finding::fails(belief, against.join("; ")),
        }
    }
}
