// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The server: which requests are taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ::http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::secret::{FRESH, MAC, NEXT, NONCE, Secret, is_same};

/// Nonces that are outstanding at once; the oldest ends when another one is issued. At 200 requests a second
/// a client has 20 s for its own.
const OUTSTANDING: usize = 4096;

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not signed: the first one of a client.
    #[error("the request is not signed")]
    Unsigned,
    /// Its nonce was not issued by this process, or too many were issued since.
    #[error("the nonce of the request is unknown")]
    UnknownNonce,
    /// Its nonce was used before: it is a repetition.
    #[error("the nonce of the request was used before")]
    UsedNonce,
    /// Its MAC is not that of who knows the secret.
    #[error("the request is not signed with the data centre's secret")]
    WrongMac,
}

impl Refused {
    const NAMES: [&'static str; 4] = ["unsigned", "unknown_nonce", "used_nonce", "wrong_mac"];
}

/// The MAC of a request that was taken, with which its answer is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard(String);

/// Checks requests to one server.
#[derive(Debug)]
pub struct Verifier {
    secret: Secret,
    audience: String,
    nonces: Mutex<Nonces>,
    refusals: [AtomicU64; 4],
}

impl Verifier {
    /// Checks requests to the server of this name. `seed` is drawn for each process.
    pub fn new(secret: Secret, audience: &str, seed: [u8; 32]) -> Verifier {
        let nonces = Nonces { key: seed, next: 0, used: VecDeque::new() };
        let refusals = Default::default();
        Verifier { secret, audience: audience.to_owned(), nonces: Mutex::new(nonces), refusals }
    }

    /// Takes a request once.
    ///
    /// # Errors
    /// [`Refused`], which is counted.
    pub fn take(
        &self,
        (method, target): (&Method, &str),
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Heard, Refused> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let taken = match (text(NONCE), text(FRESH), text(MAC)) {
            (Some(nonce), Some(fresh), Some(sent)) => {
                let (audience, method) = (self.audience.as_bytes(), method.as_str().as_bytes());
                let (nonces, target) = ((nonce.as_bytes(), fresh.as_bytes()), target.as_bytes());
                let mac =
                    self.secret.of_request([audience, method, target, nonces.0, nonces.1, body]);
                let is_right = is_same(&mac, sent);
                self.lock().take(nonce, is_right).map(|()| Heard(mac.to_hex().to_string()))
            }
            _ => Err(Refused::Unsigned),
        };
        if let Err(refused) = taken {
            self.refusals[refused as usize].fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Adds a fresh nonce to an answer, and the MAC of the answer if its request was taken.
    pub fn sign(
        &self,
        heard: Option<&Heard>,
        status: StatusCode,
        headers: &mut HeaderMap,
        body: &[u8],
    ) {
        let next = self.lock().issue();
        if let Some(Heard(mac)) = heard {
            let status = status.as_u16().to_be_bytes();
            let parts = [self.audience.as_bytes(), mac.as_bytes(), &status, next.as_bytes(), body];
            put(headers, MAC, self.secret.of_answer(parts).to_hex().as_str());
        }
        put(headers, NEXT, &next);
    }

    /// Each reason's name and how often it was seen since the start.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refusals.iter().map(|count| count.load(Ordering::Relaxed));
        Refused::NAMES.into_iter().zip(counts)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Nonces> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(headers: &mut HeaderMap, name: &'static str, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// The nonces of a process: a number and its MAC, so that only which were used is remembered.
#[derive(Debug)]
struct Nonces {
    key: [u8; 32],
    next: u64,
    /// Of the newest numbers, oldest first.
    used: VecDeque<bool>,
}

impl Nonces {
    fn issue(&mut self) -> String {
        let nonce = self.text(self.next);
        self.next += 1;
        self.used.push_back(false);
        if self.used.len() > OUTSTANDING {
            self.used.pop_front();
        }
        nonce
    }

    fn text(&self, number: u64) -> String {
        let tag = blake3::keyed_hash(&self.key, &number.to_be_bytes()).to_hex();
        format!("{number:x}.{}", &tag.as_str()[..32])
    }

    /// Uses a nonce up, if the request is right.
    fn take(&mut self, nonce: &str, is_right: bool) -> Result<(), Refused> {
        let number = nonce.split('.').next().and_then(|text| u64::from_str_radix(text, 16).ok());
        let number = number.filter(|number| self.text(*number) == nonce);
        let number = number.ok_or(Refused::UnknownNonce)?;
        let oldest = self.next - self.used.len() as u64;
        let at = number.checked_sub(oldest).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.used.get_mut(at)) {
            None => Err(Refused::UnknownNonce),
            Some(true) => Err(Refused::UsedNonce),
            Some(_) if !is_right => Err(Refused::WrongMac),
            Some(used) => {
                *used = true;
                Ok(())
            }
        }
    }
}
