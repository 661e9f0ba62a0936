// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! G10, the mass-change brake: when much looks leaked, or the node shows suspiciously little,
//! nothing is deleted until VMAPI has confirmed each one, or the operator approved it. Waiting
//! alone never takes it off.

/// More deletes than anybody counted: the memory of the last hour is lost.
pub const UNKNOWN: usize = usize::MAX;

/// What the brake (G10) looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Records that look leaked as far as the node can tell (G1–G4), whatever else keeps them.
    pub candidates: usize,
    /// Deletes of the last hour; [`UNKNOWN`] after a damaged memory.
    pub recent: usize,
    /// Zone records with our `cn_uuid` in NAPI's list.
    pub listed: usize,
    /// VMs in the view now.
    pub local_vms: usize,
    /// Most VMs any complete view of the last hour showed, or the size it has fallen from.
    pub most_vms: Option<usize>,
}

impl Scale {
    /// How many deletes an hour may see unconfirmed.
    pub fn allowance(&self) -> usize {
        (self.listed / 10).max(5)
    }

    /// Why the brake is on, if so.
    pub fn tripped(&self) -> Option<String> {
        if self.candidates == 0 {
            return None;
        }
        if let Some(why) = self.shrunk() {
            return Some(why);
        }
        let allowance = self.allowance();
        if self.recent == UNKNOWN {
            return Some("the deletes of the last hour are not known".to_owned());
        }
        (self.candidates.saturating_add(self.recent) > allowance).then(|| {
            format!(
                "{} candidates and {} deletes in the last hour are above {allowance}",
                self.candidates, self.recent
            )
        })
    }

    /// Why the view alone is a reason to stop, if so.
    pub fn shrunk(&self) -> Option<String> {
        if self.local_vms == 0 {
            let nics = self.listed.max(self.candidates);
            return Some(format!("the node shows no VM while NAPI has {nics} NICs of it"));
        }
        self.most_vms.filter(|most| self.local_vms * 2 < *most).map(|most| {
            format!("the node shows {} VMs, fewer than half of the {most} it had", self.local_vms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_the_issues_own() {
        let calm =
            Scale { candidates: 1, recent: 0, listed: 30, local_vms: 10, most_vms: Some(10) };
        for (on, scale) in [
            (false, calm),
            (false, Scale { candidates: 5, ..calm }),
            (true, Scale { candidates: 6, ..calm }),
            (true, Scale { candidates: 3, recent: 3, ..calm }),
            (false, Scale { candidates: 10, listed: 100, ..calm }),
            (true, Scale { candidates: 11, listed: 100, ..calm }),
            (true, Scale { recent: UNKNOWN, ..calm }),
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
