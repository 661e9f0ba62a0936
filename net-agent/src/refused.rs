// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The records that NAPI refused to write. The reason may pass, so each is looked at again three times.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sdc_clients::MacAddr;

use crate::outcome::Outcome;

/// After how many second looks: 1, 5 and 30 minutes.
const LOOKS: [u32; 3] = [1, 5, 30];
/// The most records that are remembered; a refusal of all is one of NAPI itself.
const MOST: usize = 10_000;

/// How often each record was refused in a row.
#[derive(Debug)]
pub struct Refused {
    times: Mutex<BTreeMap<MacAddr, usize>>,
    second_look: Duration,
}

impl Refused {
    pub fn new(second_look: Duration) -> Self {
        Self { times: Mutex::default(), second_look }
    }

    /// Returns the pause after which a record is looked at again, if this outcome of a write asks for that.
    pub fn again(&self, mac: MacAddr, outcome: &Outcome) -> Option<Duration> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(outcome, Outcome::Refused(_)) {
            times.remove(&mac);
            return None;
        }
        if times.len() >= MOST && !times.contains_key(&mac) {
            return None;
        }
        let count = times.entry(mac).or_default();
        let pause = LOOKS.get(*count).map(|looks| self.second_look * *looks);
        // What was looked at so often is left alone until something else asks.
        *count = pause.map_or(0, |_| *count + 1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Reason;

    #[test]
    fn looks_again_after_1_5_and_30_minutes() {
        let (refused, mac) =
            (Refused::new(Duration::from_secs(60)), "f2:00:00:00:00:01".parse().unwrap());
        let no = Outcome::Refused(Reason::NoRecord);
        let minutes = || refused.again(mac, &no).map(|pause| pause.as_secs() / 60);
        assert_eq!([(); 4].map(|()| minutes()), [Some(1), Some(5), Some(30), None]);
        assert_eq!(minutes(), Some(1), "a new reason to write");
        assert_eq!(refused.again(mac, &Outcome::Done), None);
        assert_eq!(refused.again(mac, &no), Some(Duration::from_secs(60)));
    }
}
