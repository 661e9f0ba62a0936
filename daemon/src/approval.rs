// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Approvals. An offer lists records with their etags; its id is a digest of that list. Approving
//! the id lifts the brake, and only the brake, from those records while their etags stay the same.
//! Offers and approvals last 15 minutes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// How long offers and approvals last.
pub const VALID: Duration = Duration::from_secs(15 * 60);
/// Offers kept at once.
const OFFERS: usize = 16;

/// A list of records that the brake blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<K> {
    /// Its name.
    pub id: String,
    /// When it was made, on the agent's clock.
    pub made: Duration,
    /// The records as they were read for it.
    pub pairs: BTreeMap<K, String>,
}

/// Why an id cannot be approved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Never offered, or too long ago.
    #[error("no such plan, or older than 15 minutes: ask for the plan again")]
    Unknown,
}

/// Offers and approvals.
#[derive(Clone, Debug)]
pub struct Approvals<K> {
    offers: Vec<Offer<K>>,
    approved: BTreeMap<K, (String, Duration)>,
}

impl<K> Default for Approvals<K> {
    fn default() -> Self {
        Self { offers: Vec::new(), approved: BTreeMap::new() }
    }
}

impl<K: Ord + Clone + Display> Approvals<K> {
    /// Makes an offer of these records, or none if there are none.
    pub fn offer(&mut self, pairs: BTreeMap<K, String>, now: Duration) -> Option<Offer<K>> {
        self.offers.retain(|offer| now.saturating_sub(offer.made) < VALID);
        if pairs.is_empty() {
            return None;
        }
        let offer = Offer { id: digest(&pairs), made: now, pairs };
        self.offers.retain(|other| other.id != offer.id);
        if self.offers.len() >= OFFERS {
            self.offers.remove(0);
        }
        self.offers.push(offer.clone());
        Some(offer)
    }

    /// Returns the latest offer that can still be approved.
    pub fn latest(&self, now: Duration) -> Option<&Offer<K>> {
        self.offers.iter().rev().find(|offer| now.saturating_sub(offer.made) < VALID)
    }

    /// Approves an offer. Returns the number of records.
    ///
    /// # Errors
    /// If it is unknown or too old.
    pub fn approve(&mut self, id: &str, now: Duration) -> Result<usize, Refused> {
        let young = |offer: &&Offer<K>| now.saturating_sub(offer.made) < VALID;
        let offer = self.offers.iter().filter(young).find(|offer| offer.id == id);
        let offer = offer.ok_or(Refused::Unknown)?;
        self.approved.retain(|_, (_, until)| now < *until);
        for (key, etag) in &offer.pairs {
            self.approved.insert(key.clone(), (etag.clone(), now + VALID));
        }
        Ok(offer.pairs.len())
    }

    /// Returns true if this record is approved as it is.
    pub fn covers(&self, key: &K, etag: &str, now: Duration) -> bool {
        self.approved.get(key).is_some_and(|(known, until)| known == etag && now < *until)
    }

    /// Returns the records that an approval covers, whatever their etags are now.
    pub fn keys(&self, now: Duration) -> impl Iterator<Item = K> {
        self.approved.iter().filter(move |(_, (_, until))| now < *until).map(|(key, _)| key.clone())
    }
}

/// Returns the FNV-1a hash of the sorted pairs. It only names one of the few remembered lists;
/// what is approved is taken from the list.
fn digest<K: Display>(pairs: &BTreeMap<K, String>) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for (key, etag) in pairs {
        for byte in format!("{key} {etag}\n").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_covers_the_listed_etags_for_15_minutes() {
        let mac = |n: u8| format!("f2:00:00:00:00:{n:02x}");
        let pairs = |etag: &str| BTreeMap::from([(mac(1), etag.to_owned()), (mac(2), "B".into())]);
        let s = Duration::from_secs;
        let mut approvals = Approvals::default();
        assert_eq!(approvals.offer(BTreeMap::new(), s(0)), None);
        let offer = approvals.offer(pairs("A"), s(0)).unwrap();
        assert_eq!(approvals.offer(pairs("A"), s(1)).unwrap().id, offer.id, "same list, same id");
        let other = approvals.offer(pairs("C"), s(2)).unwrap();
        assert_ne!(other.id, offer.id);
        assert_eq!(approvals.approve("nonsense", s(3)), Err(Refused::Unknown));
        assert!(!approvals.covers(&mac(1), "A", s(3)), "an offer alone approves nothing");
        assert_eq!(approvals.approve(&offer.id, s(900)), Ok(2));
        assert!(approvals.covers(&mac(1), "A", s(900)) && approvals.covers(&mac(2), "B", s(900)));
        assert!(!approvals.covers(&mac(1), "C", s(900)), "it changed since");
        assert!(!approvals.covers(&mac(3), "A", s(900)));
        assert!(!approvals.covers(&mac(1), "A", s(1800)), "run out");
        assert_eq!(approvals.approve(&other.id, s(902)), Err(Refused::Unknown), "too old");
    }
}
