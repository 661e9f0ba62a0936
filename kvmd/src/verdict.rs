// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The verdict on an instance that ended: who turned it off, how, on which evidence, how sure.

use serde::{Deserialize, Serialize};

/// Who turned it off.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Initiator {
    /// The guest, hence its user.
    Guest,
    /// The node: an operator, an admin tool, the platform.
    Host,
    /// The machine's watchdog.
    Watchdog,
    /// Unknown.
    Unknown,
}

/// How it ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// It ended without an event.
    Abrupt,
    /// It was asked to power off, did not, and ended without an event.
    KillAfterPowerdown,
    /// It was migrated.
    Migrated,
    /// The machine's watchdog acted.
    Watchdog,
    /// Its end was not watched.
    Unwatched,
}

/// How sure the verdict is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Other causes look the same.
    Low,
    /// Nothing contradicts it.
    Medium,
    /// QEMU said so.
    High,
}

/// The verdict on one end of one generation of an instance.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Who.
    pub initiator: Initiator,
    /// How it ended.
    pub kind: Kind,
    /// How sure the verdict is.
    pub confidence: Confidence,
    /// The evidence, in the order in which it was seen.
    pub evidence: Vec<String>,
}

impl Verdict {
    /// Makes a verdict without evidence.
    pub fn new(initiator: Initiator, kind: Kind, confidence: Confidence) -> Self {
        Self { initiator, kind, confidence, evidence: Vec::new() }
    }

    /// Adds a piece of evidence.
    pub fn on(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// Returns true if the user wants the instance to stay off: the guest chose an end that leaves it off. A
    /// reset or a panic wants a restart.
    pub fn is_users_wish(&self) -> bool {
        self.initiator == Initiator::Guest && matches!(self.kind, Kind::Poweroff | Kind::Hibernate)
    }
}

/// The rule that decides about the marker.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The shipped daemon's, with its known mistakes.
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

/// Returns a unit variant's name on the wire.
pub fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
