// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The verbs about who is let in.

use clap::Subcommand;

use super::parts::Consent;

/// What is done about who is let in.
#[derive(Subcommand, Debug, Clone)]
pub enum TrustVerb {
    /// Make the authority that signs certificates.
    Init,
    /// Print a new join token.
    Token {
        /// A node's uuid; `any` for the agents of all nodes, each of which has to be approved; `volapi`; `operator`.
        whom: String,
        /// How long it may be used.
        #[arg(long, value_name = "SPAN", default_value = "24h")]
        valid: String,
    },
    /// Show the authorities, and which programs are enrolled or wait for approval.
    List {
        /// JSON.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Approve the key that waits, in place of the enrolled one. Without --key both fingerprints are shown.
    #[command(after_help = "\
Examples:
  sdc-migrate trust approve CN                 shows the fingerprints
  sdc-migrate trust approve CN --key FINGERPRINT

Compare the fingerprint with what the program shows on its node: the holder of the key is that program from then on.")]
    Approve {
        /// A node's uuid, `volapi` or `operator`.
        who: String,
        /// The whole fingerprint of the key that waits, as the program shows it.
        #[arg(long)]
        key: Option<String>,
    },
    /// Make every certificate of a program invalid.
    #[command(after_help = "\
Examples:
  sdc-migrate trust revoke CN
  sdc-migrate trust revoke operator --key FINGERPRINT

No VM migrates to or from a node whose agent is revoked, until the agent has joined again with a new token.")]
    Revoke {
        /// A node's uuid, `volapi` or `operator`.
        who: String,
        /// Of this key alone: one of many operators.
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
    /// End the transition: every agent has to authenticate, and only a token of one node enrols another.
    #[command(after_help = "\
Examples:
  sdc-migrate trust require
  sdc-migrate trust require --off

No VM migrates to or from a node whose agent has no certificate. It is refused while there is such an agent, unless
--without-them is given.")]
    Require {
        /// Allow tokens for any node again.
        #[arg(long)]
        off: bool,
        /// Although some agents have no certificate.
        #[arg(long, conflicts_with = "off")]
        without_them: bool,
    },
    /// Ask for an operator's certificate, with the token that is read from stdin. Another operator has to approve it.
    Join,
    /// Make a new authority, or end the rotation that is under way: both are valid until all have renewed.
    #[command(after_help = "\
Examples:
  sdc-migrate trust rotate                     the new authority signs from now on
  sdc-migrate trust rotate                     again: the old one is no longer valid

The second one is refused while a program has a certificate of the old authority, unless --without-them is given: such
a program has to join again, and no VM migrates to or from its node before.")]
    Rotate {
        /// End it though some have not renewed: they have to join again.
        #[arg(long)]
        without_them: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Print the authorities' certificates, which are no secret.
    Export,
}
