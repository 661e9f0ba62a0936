// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is asked of the service's trust, at its port for agents: JSON.
//!
//! | request | from | body | answer |
//! | --- | --- | --- | --- |
//! | `POST /trust/join` | a program with a token | [`Join`] | [`Joined`] |
//! | `POST /trust/state` | a program with a certificate | [`Asks`] | [`State`] |

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A new program asks to be let in.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The secret of its token.
    pub secret: String,
    /// The node, of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cn: Option<Uuid>,
    /// The signing request of its key, in PEM.
    pub request: String,
}

/// What comes of it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// It is let in.
    Issued {
        /// Its certificate, in PEM.
        certificate: String,
        /// The authorities, and what is revoked.
        #[serde(flatten)]
        known: Known,
    },
    /// A person has to approve it; it is asked again.
    Waits {
        /// The fingerprint of its key, as the person sees it.
        key: String,
    },
}

/// What a program has to know to check certificates.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The certificates of the authorities, in PEM.
    pub roots: Vec<String>,
    /// Their lists of what is revoked, in PEM.
    pub revoked: Vec<String>,
}

/// A program asks what is new.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Asks {
    /// The fingerprint of its key.
    pub key: String,
    /// The names of the authorities that it knows.
    pub knows: Vec<String>,
    /// A signing request of its key, where its certificate is to be renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// What is new.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The authorities, and what is revoked.
    #[serde(flatten)]
    pub known: Known,
    /// Its new certificate, where it asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// It is to ask for one now: another authority signs.
    #[serde(default)]
    pub renew: bool,
}
