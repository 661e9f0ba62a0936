// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The brake (H4): VMs that leave together are looked at twice, and a node that shows nothing or fewer
//! than half of what it had reports nobody destroyed.

use std::time::Duration;

use daemon::brake::{LITTLE, Reference, Shrunk, allowance};

/// How many VMs that this agent has never seen may be reported in a day: they may be another machine's.
pub const STRANGERS: usize = 2;

/// Why the brake is on. Waiting alone does not take it off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Tripped {
    #[error("the node shows no VM while VMAPI or this agent knew {gone} of it")]
    NoVms {
        /// The VMs that are not there any more.
        gone: usize,
    },
    #[error(transparent)]
    Shrunk(#[from] Shrunk),
}

/// The VMs that left and are not settled, among those that are here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// The VMs that are here, hidden ones included.
    pub here: usize,
    /// The VMs that are gone and not settled.
    pub gone: usize,
    /// Those besides that left in the last day.
    pub left: usize,
}

/// Why a VM that is gone may not be reported now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    #[error("{0}")]
    Brake(Tripped),
    #[error("{gone} VMs left at once, more than {allowance}: they are looked at again in {} s",
        .left.as_secs())]
    SecondLook { gone: usize, allowance: usize, left: Duration },
    #[error(
        "VMAPI has {gone} VMs here that this agent has never seen, more than {STRANGERS} in a day"
    )]
    Strangers { gone: usize },
}

impl Crowd {
    /// Returns why the brake is on, if it is.
    pub fn tripped(self) -> Option<Tripped> {
        let gone = self.gone + self.left;
        let most = self.here + gone;
        if most <= LITTLE {
            return None;
        }
        if self.here == 0 {
            return Some(Tripped::NoVms { gone });
        }
        Reference { vms: most, here: self.here }.shrunk().map(Tripped::Shrunk)
    }

    /// Decides whether one of those that are gone may be reported; `since` it has been seen gone.
    pub fn clear(self, since: Duration, second_look: Duration) -> Result<(), Blocked> {
        if let Some(why) = self.tripped() {
            return Err(Blocked::Brake(why));
        }
        let (gone, allowance) = (self.gone, allowance(self.here + self.gone));
        let left = second_look.saturating_sub(since);
        if gone > allowance && !left.is_zero() {
            return Err(Blocked::SecondLook { gone, allowance, left });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // H4
    fn the_brake_is_on_at_the_documented_limits() {
        let s = Duration::from_secs;
        for (here, gone, since, want) in [
            (0, 3, 0, "go"),
            (0, 4, 9999, "brake"),
            (2, 2, 0, "go"),
            (1, 2, 0, "go"),
            (1, 3, 9999, "brake"),
            (10, 10, 0, "later"),
            (10, 10, 60, "go"),
            (10, 11, 9999, "brake"),
            (30, 5, 0, "go"),
            (30, 6, 59, "later"),
            (30, 6, 60, "go"),
            (90, 10, 0, "go"),
            (89, 11, 0, "later"),
        ] {
            let got = match (Crowd { here, gone, left: 0 }).clear(s(since), s(60)) {
                Ok(()) => "go",
                Err(Blocked::Brake(_)) => "brake",
                Err(_) => "later",
            };
            assert_eq!(got, want, "{here} here, {gone} gone since {since} s");
        }
    }

    #[test] // W31
    fn what_left_in_the_last_day_counts_for_the_brake_and_for_no_second_look() {
        let (s, day) = (Duration::from_secs, |here, gone, left| Crowd { here, gone, left });
        assert!(day(10, 1, 9).clear(s(0), s(60)).is_ok());
        assert!(matches!(day(10, 1, 10).clear(s(999), s(60)), Err(Blocked::Brake(_))));
    }
}
