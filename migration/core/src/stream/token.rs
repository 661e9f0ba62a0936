// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One-time tokens: what may be opened, and for what.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::frame::{ID, OPENING, id_of};
use super::refused::Refused;

/// How long a token may wait for its stream.
const LIFE: Duration = Duration::from_secs(120);
/// Tokens that may wait at once.
const WAITING: usize = 1024;
/// Used tokens that are remembered, so that their second use has its own name.
const USED: usize = 4096;

/// The name of one stream, which is opened with it once. It is no secret: who may open the stream is decided by the
/// certificate at the other end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub(super) id: [u8; ID],
}

impl Token {
    /// Reads the token that the target's agent has sent.
    /// Fails with [`NoToken::Text`].
    pub fn read(text: &str) -> Result<Token, NoToken> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.len() != 2 * ID || !is_hex {
            return Err(NoToken::Text);
        }
        let byte =
            |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default();
        Ok(Token { id: std::array::from_fn(byte) })
    }

    /// Returns it as text.
    pub fn id(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    /// Too many tokens wait for their streams.
    #[error("{WAITING} streams are expected already")]
    TooMany,
    /// A text that is no token.
    #[error("not a token of a stream")]
    Text,
}

/// The tokens that may still open a stream, each with what the stream is for.
#[derive(Debug)]
pub struct Tokens<T> {
    /// Drawn for each process, so that no id is issued twice.
    seed: [u8; 8],
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
    until: Instant,
    purpose: T,
}

impl<T> Tokens<T> {
    /// No tokens yet. `seed` is drawn for each process.
    pub fn new(seed: [u8; 8]) -> Tokens<T> {
        let issued = Issued { number: 0, waiting: HashMap::new(), used: VecDeque::new() };
        Tokens { seed, issued: Mutex::new(issued) }
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
        let mut id = [0; ID];
        id[..8].copy_from_slice(&self.seed);
        id[8..].copy_from_slice(&issued.number.to_be_bytes());
        let token = Token { id };
        let waiting = Waiting { until: now + LIFE, purpose };
        issued.waiting.insert(token.id, waiting);
        Ok(token)
    }

    /// Uses up the token of this opening. One that was issued for another node is left.
    pub(super) fn redeem(
        &self,
        opening: &[u8; OPENING],
        is_for: impl Fn(&T) -> bool,
    ) -> Result<T, Refused> {
        let id = id_of(opening)?;
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        match issued.waiting.get(&id) {
            Some(waiting) if Instant::now() >= waiting.until => return Err(Refused::UnknownToken),
            Some(waiting) if !is_for(&waiting.purpose) => return Err(Refused::WrongToken),
            Some(_) => {}
            None if issued.used.contains(&id) => return Err(Refused::UsedToken),
            None => return Err(Refused::UnknownToken),
        }
        let waiting = issued.waiting.remove(&id).ok_or(Refused::UnknownToken)?;
        issued.used.push_back(id);
        if issued.used.len() > USED {
            issued.used.pop_front();
        }
        Ok(waiting.purpose)
    }
}
