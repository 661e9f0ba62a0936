// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One-time tokens: what may be opened, and for what.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sdc_clients::signed::Secret;
use tokio::time::Instant;

use super::frame::{ID, Keys, OPENING, id_of};
use super::refused::Refused;

/// How long a token may wait for its stream.
const LIFE: Duration = Duration::from_secs(120);
/// Tokens that may wait at once.
const WAITING: usize = 1024;
/// Used tokens that are remembered, so that their second use has its own name.
const USED: usize = 4096;

/// Makes the secrets of tokens from their ids: what the data centre's secret gives for this purpose.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// Derives the key.
    pub fn of(secret: &Secret) -> TokenKey {
        TokenKey(secret.key("vm migration 2026 tokens", b""))
    }

    /// Returns the token of this id, which the target's agent has sent.
    pub fn token(&self, id: &str) -> Result<Token, NoToken> {
        let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if id.len() != 2 * ID || !is_hex {
            return Err(NoToken::Text);
        }
        let byte = |at: usize| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap_or_default();
        Ok(self.make(std::array::from_fn(byte)))
    }

    fn make(&self, id: [u8; ID]) -> Token {
        Token { id, secret: *blake3::keyed_hash(&self.0, &id).as_bytes() }
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey")
    }
}

/// What opens one stream, once. Its id crosses the network; its secret never does.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub(super) id: [u8; ID],
    secret: [u8; 32],
}

impl Token {
    pub(super) fn keys(&self) -> Keys {
        Keys::of(&self.secret)
    }

    /// Returns the id as text.
    pub fn id(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.id())
    }
}

/// Why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    /// Too many tokens wait for their streams.
    #[error("{WAITING} streams are waited for already")]
    TooMany,
    /// A text that is no token.
    #[error("this is no token")]
    Text,
}

/// The tokens that may still open a stream, each with what the stream is for.
#[derive(Debug)]
pub struct Tokens<T> {
    key: TokenKey,
    /// Drawn for each process, so that no id is issued twice.
    seed: [u8; 32],
    issued: Mutex<Issued<T>>,
}

#[derive(Debug)]
struct Issued<T> {
    number: u64,
    waiting: HashMap<[u8; ID], Waiting<T>>,
    used: VecDeque<[u8; ID]>,
}

#[derive(Debug)]
struct Waiting<T> {
    token: Token,
    until: Instant,
    purpose: T,
}

impl<T> Tokens<T> {
    /// No tokens yet. `seed` is drawn for each process.
    pub fn new(key: TokenKey, seed: [u8; 32]) -> Tokens<T> {
        let issued = Issued { number: 0, waiting: HashMap::new(), used: VecDeque::new() };
        Tokens { key, seed, issued: Mutex::new(issued) }
    }

    /// Makes a token that opens one stream for this purpose, within two minutes.
    pub fn issue(&self, purpose: T) -> Result<Token, NoToken> {
        let now = Instant::now();
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        issued.waiting.retain(|_, waiting| now < waiting.until);
        if issued.waiting.len() >= WAITING {
            return Err(NoToken::TooMany);
        }
        issued.number += 1;
        let id = blake3::keyed_hash(&self.seed, &issued.number.to_be_bytes());
        let token = self.key.make(std::array::from_fn(|at| id.as_bytes()[at]));
        let waiting = Waiting { token: token.clone(), until: now + LIFE, purpose };
        issued.waiting.insert(token.id, waiting);
        Ok(token)
    }

    /// Uses up the token that made this opening. An opening that was not made with the token leaves it.
    pub(super) fn redeem(&self, opening: &[u8; OPENING]) -> Result<(Keys, T), Refused> {
        let id = id_of(opening)?;
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
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
