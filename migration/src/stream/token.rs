// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One-time tokens: what may be opened, and for what.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio::time::Instant;

use super::frame::{ID, Keys, OPENING, id_of};
use super::refused::Refused;

/// How long a token may wait for its stream.
const LIFE: Duration = Duration::from_secs(120);
/// Tokens that may wait at once.
const WAITING: usize = 1024;
/// Used tokens that are remembered, so that their second use has its own name.
const USED: usize = 4096;

/// What opens one stream, once. Its text is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub(super) id: [u8; ID],
    secret: [u8; 32],
}

impl Token {
    fn random() -> Result<Token, NoToken> {
        let (mut id, mut secret) = ([0; ID], [0; 32]);
        for bytes in [&mut id[..], &mut secret[..]] {
            SysRng.try_fill_bytes(bytes).map_err(|_| NoToken::Randomness)?;
        }
        Ok(Token { id, secret })
    }

    pub(super) fn keys(&self) -> Keys {
        Keys::of(&self.secret)
    }

    /// The text that the service hands to the source's agent.
    pub fn to_secret_text(&self) -> String {
        let bytes = self.id.iter().chain(&self.secret);
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Token, NoToken> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.len() != 2 * (ID + 32) || !is_hex {
            return Err(NoToken::Text);
        }
        let byte =
            |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default();
        let id = std::array::from_fn(byte);
        Ok(Token { id, secret: std::array::from_fn(|at| byte(ID + at)) })
    }
}

/// Why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Randomness,
    /// Too many tokens wait for their streams.
    #[error("{WAITING} streams are waited for already")]
    TooMany,
    /// A text that is no token.
    #[error("this is no token")]
    Text,
}

/// The tokens that may still open a stream, each with what the stream is for.
#[derive(Debug)]
pub struct Tokens<T>(Mutex<Issued<T>>);

#[derive(Debug)]
struct Issued<T> {
    waiting: HashMap<[u8; ID], Waiting<T>>,
    used: VecDeque<[u8; ID]>,
}

#[derive(Debug)]
struct Waiting<T> {
    token: Token,
    until: Instant,
    purpose: T,
}

impl<T> Default for Tokens<T> {
    fn default() -> Tokens<T> {
        Tokens(Mutex::new(Issued { waiting: HashMap::new(), used: VecDeque::new() }))
    }
}

impl<T> Tokens<T> {
    /// Makes a token that opens one stream for this purpose, within two minutes.
    ///
    /// # Errors
    /// [`NoToken::TooMany`], and where the system has no random bytes.
    pub fn issue(&self, purpose: T) -> Result<Token, NoToken> {
        let token = Token::random()?;
        let now = Instant::now();
        let mut issued = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        issued.waiting.retain(|_, waiting| now < waiting.until);
        if issued.waiting.len() >= WAITING {
            return Err(NoToken::TooMany);
        }
        let waiting = Waiting { token: token.clone(), until: now + LIFE, purpose };
        issued.waiting.insert(token.id, waiting);
        Ok(token)
    }

    /// Uses up the token that made this opening. An opening that was not made with the token leaves it.
    pub(super) fn redeem(&self, opening: &[u8; OPENING]) -> Result<(Keys, T), Refused> {
        let id = id_of(opening)?;
        let mut issued = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = match issued.waiting.get(&id) {
            Some(waiting) if Instant::now() < waiting.until => waiting.token.keys(),
            None if issued.used.contains(&id) => return Err(Refused::UsedToken),
            _ => return Err(Refused::UnknownToken),
        };
        if !keys.opens(opening) {
            return Err(Refused::WrongToken);
        }
        let waiting = issued.waiting.remove(&id).ok_or(Refused::UnknownToken)?;
        issued.used.push_back(id);
        if issued.used.len() > USED {
            issued.used.pop_front();
        }
        Ok((keys, waiting.purpose))
    }
}
