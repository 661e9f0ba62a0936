// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When the brake is on: too many deletes, or a node that shows suspiciously little. Then nothing
//! is deleted until VMAPI has confirmed each record or the operator approved it. Waiting alone
//! never takes it off. Pure.

/// What the brake measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Records that look leaked as far as the node can tell (G1–G4).
    pub candidates: usize,
    /// Deletes of the last hour; none if unknown, after the state file was damaged.
    pub recent: Option<usize>,
    /// Zone records with this `cn_uuid` in NAPI's list.
    pub listed: usize,
    pub local_vms: usize,
    /// Size of the largest complete view of the last hour, or the size it has fallen from.
    pub most_vms: Option<usize>,
}

/// Why the brake is on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Tripped {
    #[error("the node shows no VM while NAPI has {nics} NICs of it")]
    NoVms { nics: usize },
    /// The node shows much less than before.
    #[error("the node shows {here} VMs, fewer than half of the {most} it had")]
    Shrunk { here: usize, most: usize },
    #[error("the number of deletes in the last hour is unknown")]
    RecentUnknown,
    #[error("{candidates} candidates and {recent} deletes in the last hour are above {allowance}")]
    TooMany { candidates: usize, recent: usize, allowance: usize },
    /// NAPI seems to have lost its records.
    #[error("NAPI has no record of {missing} of the {here} NICs here")]
    EmptyList {
        /// MACs that NAPI does not know.
        missing: usize,
        here: usize,
    },
    /// The record changed after its approval, or the approval ran out.
    #[error("the record is not what was approved, or the approval ran out")]
    NotApproved,
    /// One of the above for a whole pass.
    #[error("{why}; VMAPI has not confirmed {open}")]
    Unconfirmed {
        why: Box<Tripped>,
        /// How many records VMAPI has not confirmed.
        open: usize,
    },
}

impl Scale {
    /// Returns how many unconfirmed deletes are allowed in an hour.
    pub fn allowance(&self) -> usize {
        (self.listed / 10).max(5)
    }

    /// Returns why the brake is on, if it is.
    pub fn tripped(&self) -> Option<Tripped> {
        if self.candidates == 0 {
            return None;
        }
        if let Some(why) = self.shrunk() {
            return Some(why);
        }
        let (candidates, allowance) = (self.candidates, self.allowance());
        let Some(recent) = self.recent else { return Some(Tripped::RecentUnknown) };
        (candidates.saturating_add(recent) > allowance).then_some(Tripped::TooMany {
            candidates,
            recent,
            allowance,
        })
    }

    /// Returns why the view alone is a reason to stop, if it is.
    pub fn shrunk(&self) -> Option<Tripped> {
        let here = self.local_vms;
        if here == 0 {
            return Some(Tripped::NoVms { nics: self.listed.max(self.candidates) });
        }
        let most = self.most_vms.filter(|most| here * 2 < *most)?;
        Some(Tripped::Shrunk { here, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // G10
    fn trips_at_the_documented_limits() {
        let calm =
            Scale { candidates: 1, recent: Some(0), listed: 30, local_vms: 10, most_vms: Some(10) };
        for (on, scale) in [
            (false, calm),
            (false, Scale { candidates: 5, ..calm }),
            (true, Scale { candidates: 6, ..calm }),
            (true, Scale { candidates: 3, recent: Some(3), ..calm }),
            (false, Scale { candidates: 10, listed: 100, ..calm }),
            (true, Scale { candidates: 11, listed: 100, ..calm }),
            (true, Scale { recent: None, ..calm }),
            (false, Scale { local_vms: 5, ..calm }),
            (true, Scale { local_vms: 4, ..calm }),
            (true, Scale { local_vms: 0, most_vms: None, ..calm }),
            (true, Scale { local_vms: 0, listed: 0, most_vms: None, ..calm }),
            (false, Scale { candidates: 0, local_vms: 0, ..calm }),
        ] {
            assert_eq!(scale.tripped().is_some(), on, "{scale:?}");
        }
    }
}
