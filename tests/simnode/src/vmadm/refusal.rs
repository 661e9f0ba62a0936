// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why vmadm refuses a payload, in its words.

/// A payload that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A property that has to be a number is none.
    #[error("Invalid value for {0}: null:number")]
    NotANumber(String),
    /// Values of a wrong kind.
    #[error("Invalid value(s) for: {}", .0.join(","))]
    Values(Vec<String>),
    /// Properties without which there is no VM.
    #[error("Missing required properties: {}", .0.join(","))]
    Missing(Vec<String>),
    /// A rule of the second pass.
    #[error("{0}")]
    Rule(String),
    /// The real vmadm ends with an uncaught exception here: a node dumps core.
    #[error("uncaught exception: {0}")]
    Dies(&'static str),
}

impl Refusal {
    /// A rule of the second pass.
    pub(crate) fn rule<T>(why: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal::Rule(why.into()))
    }
}
