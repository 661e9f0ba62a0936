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
const VALID: Duration = Duration::from_secs(15 * 60);
/// Offers kept at once.
const OFFERS: usize = 16;

/// A list of records that the brake blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<K> {
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
    last: Option<Approval>,
}

/// What an operator approved last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub by: String,
    /// When, on the agent's clock.
    pub at: Duration,
    /// How many records.
    pub count: usize,
    /// How many approved records are not settled yet.
    pub left: usize,
}

impl<K> Default for Approvals<K> {
    fn default() -> Self {
        Self { offers: Vec::new(), approved: BTreeMap::new(), last: None }
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

    /// Returns the latest offer that can still be approved, and for how much longer.
    pub fn latest(&self, now: Duration) -> Option<(Offer<K>, Duration)> {
        let left = |offer: &Offer<K>| VALID.saturating_sub(now.saturating_sub(offer.made));
        let offer = self.offers.iter().rev().find(|offer| !left(offer).is_zero())?;
        Some((offer.clone(), left(offer)))
    }

    /// Approves an offer. Returns the number of records.
    pub fn approve(&mut self, id: &str, by: &str, now: Duration) -> Result<usize, Refused> {
        let young = |offer: &&Offer<K>| now.saturating_sub(offer.made) < VALID;
        let offer = self.offers.iter().filter(young).find(|offer| offer.id == id);
        let offer = offer.ok_or(Refused::Unknown)?;
        self.approved.retain(|_, (_, until)| now < *until);
        for (key, etag) in &offer.pairs {
            self.approved.insert(key.clone(), (etag.clone(), now + VALID));
        }
        let count = offer.pairs.len();
        self.last = Some(Approval { by: by.to_owned(), at: now, count, left: 0 });
        Ok(count)
    }

    /// Nothing is left to do about this record.
    pub fn settle(&mut self, key: &K) {
        self.approved.remove(key);
    }

    /// Returns what was approved last, while it holds.
    pub fn last(&self, now: Duration) -> Option<Approval> {
        let last = self.last.clone().filter(|last| now.saturating_sub(last.at) < VALID)?;
        Some(Approval { left: self.keys(now).count(), ..last })
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
        assert_eq!(approvals.approve("nonsense", "root", s(3)), Err(Refused::Unknown));
        assert!(!approvals.covers(&mac(1), "A", s(3)), "an offer alone approves nothing");
        assert_eq!(approvals.approve(&offer.id, "alice", s(900)), Ok(2));
        assert_eq!(
            approvals.last(s(900)).map(|a| (a.by, a.count, a.left)),
            Some(("alice".into(), 2, 2))
        );
        assert!(approvals.covers(&mac(1), "A", s(900)) && approvals.covers(&mac(2), "B", s(900)));
        assert!(!approvals.covers(&mac(1), "C", s(900)), "it changed since");
        assert!(!approvals.covers(&mac(3), "A", s(900)));
        assert!(!approvals.covers(&mac(1), "A", s(1800)), "run out");
        assert_eq!(approvals.approve(&other.id, "root", s(902)), Err(Refused::Unknown), "too old");
        approvals.settle(&mac(1));
        assert_eq!(approvals.last(s(903)).unwrap().left, 1);
        assert_eq!(approvals.last(s(1800)), None, "run out");
    }
}
