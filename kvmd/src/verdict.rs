// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is said of an instance that ended: who turned it off, how, on which evidence, and how
//! sure that is.

use serde::{Deserialize, Serialize};

/// Who turned it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Initiator {
    /// The guest, hence its user.
    Guest,
    /// The node: an operator, an admin tool, the platform.
    Host,
    /// The machine's watchdog.
    Watchdog,
    /// Nothing that was seen tells.
    Unknown,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The guest powered off by itself.
    Poweroff,
    /// It was asked to power off and did.
    Powerdown,
    /// The process was told to quit.
    Quit,
    /// The process was ended by a signal that it handled.
    Signal,
    /// A reboot that the configuration turns into an end.
    Reset,
    /// The guest's kernel gave up.
    Panic,
    /// The guest suspended to disk.
    Hibernate,
    /// It ended without a word.
    Abrupt,
    /// It was asked to power off, did not, and ended without a word.
    KillAfterPowerdown,
    /// It lives on elsewhere.
    Migrated,
    /// The machine's watchdog acted.
    Watchdog,
    /// Its end was not watched.
    Unwatched,
}

/// How sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Other causes look alike.
    Low,
    /// Nothing seen speaks against it.
    Medium,
    /// QEMU said so.
    High,
}

/// The verdict on one end of one generation of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Who.
    pub initiator: Initiator,
    /// How.
    pub kind: Kind,
    /// How sure.
    pub confidence: Confidence,
    /// What it rests on, in the order in which it was seen.
    pub evidence: Vec<String>,
}

impl Verdict {
    /// Without evidence yet.
    pub fn new(initiator: Initiator, kind: Kind, confidence: Confidence) -> Self {
        Self { initiator, kind, confidence, evidence: Vec::new() }
    }

    /// The same with one more piece of evidence.
    pub fn on(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// Is it the user's wish that the instance stays off? Only an end that the guest chose and
    /// that leaves it off says so; a guest's reset or panic wants a restart.
    pub fn is_users_wish(&self) -> bool {
        self.initiator == Initiator::Guest && matches!(self.kind, Kind::Poweroff | Kind::Hibernate)
    }
}

/// Whose rule decides about the marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The shipped daemon's, to the letter, with its known mistakes.
    Ganeti,
    /// Ours: by the cause that QEMU gives.
    #[default]
    Reason,
}

impl std::str::FromStr for Rule {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "ganeti" => Ok(Self::Ganeti),
            "reason" => Ok(Self::Reason),
            _ => Err("is neither \"reason\" nor \"ganeti\"".to_owned()),
        }
    }
}

/// A unit variant's word, as it is written on the wire.
pub fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
