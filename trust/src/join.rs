// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The token that a new program is let in with: the fingerprint of the authority, so that the program knows whom it
//! talks to, and a secret.

use std::fmt;
use std::str::FromStr;

use crate::invalid::Invalid;
use crate::random::{secret, unhex};

const PREFIX: &str = "sdc-join-1";

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The fingerprint of the authority.
    pub authority: String,
    /// What lets it in.
    pub secret: String,
}

/// A text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a join token; `sdc-migrate trust token` makes one")]
pub struct NoToken;

impl Token {
    /// Makes a token of this authority.
    /// Fails with [`Invalid::NoChance`].
    pub fn new(authority: &str) -> Result<Token, Invalid> {
        Ok(Token { authority: authority.to_owned(), secret: secret::<24>()? })
    }

    /// Returns it as text: for the operator who carries it to the program, and for no other.
    pub fn text(&self) -> String {
        format!("{PREFIX}.{}.{}", self.authority, self.secret)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token of {}", self.authority)
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Token, NoToken> {
        let mut parts = text.trim().split('.');
        let (Some(PREFIX), Some(authority), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NoToken);
        };
        let is_hex = |text: &str, bytes| unhex(text).is_some_and(|it| it.len() == bytes);
        if !is_hex(authority, 32) || !is_hex(secret, 24) {
            return Err(NoToken);
        }
        Ok(Token { authority: authority.to_owned(), secret: secret.to_owned() })
    }
}
