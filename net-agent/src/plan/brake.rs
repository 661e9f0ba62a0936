// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! G10, the mass-change brake: a pass that would delete much, or a node that shows suspiciously
//! little, deletes nothing that VMAPI has not confirmed record by record.

/// What the brake (G10) looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Records every other guard would let go now.
    pub deletes: usize,
    /// Those whose VM VMAPI itself calls destroyed or failed.
    pub confirmed: usize,
    /// Deletes of the last hour.
    pub recent: usize,
    /// Zone records with our `cn_uuid` in NAPI's list.
    pub listed: usize,
    /// VMs in the view now.
    pub local_vms: usize,
    /// Most VMs any complete view of the last hour showed.
    pub most_vms: Option<usize>,
}

impl Scale {
    /// How many deletes an hour may see unconfirmed.
    pub fn allowance(&self) -> usize {
        (self.listed / 10).max(5)
    }

    /// G10: why nothing may be deleted, if so. A 404 of VMAPI is no confirmation here: an empty
    /// VMAPI must not vouch for an empty node.
    pub fn brake(&self) -> Option<String> {
        if self.deletes == 0 || self.confirmed >= self.deletes {
            return None;
        }
        let open = self.deletes - self.confirmed;
        if self.local_vms == 0 && self.listed > 0 {
            return Some(format!(
                "the node shows no VM while NAPI lists {} NICs; VMAPI has not confirmed {open}",
                self.listed
            ));
        }
        if let Some(most) = self.most_vms.filter(|most| self.local_vms * 2 < *most) {
            return Some(format!(
                "the node shows {} VMs, fewer than half of the {most} it had within the hour; VMAPI has not confirmed {open}",
                self.local_vms
            ));
        }
        let allowance = self.allowance();
        if self.deletes + self.recent > allowance {
            return Some(format!(
                "{} deletes and {} in the last hour are above {allowance}; VMAPI has not confirmed {open}",
                self.deletes, self.recent
            ));
        }
        None
    }
}
