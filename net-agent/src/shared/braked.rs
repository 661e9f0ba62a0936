// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the tasks share of the brake (G10): what it measures, what it keeps, and what the
//! operator has approved against it. Whether it is on is decided in [`crate::plan::brake`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdc_clients::MacAddr;

use super::{HOUR, Shared, lock};
use crate::approval::{Offer, Refused, VALID};
use crate::plan::brake::{Scale, UNKNOWN};
use crate::status::{Count, DEPARTURES};

impl Shared {
    /// Notes a delete for the brake's memory.
    pub fn deleted(&self) {
        lock(&self.deletes).push_back(self.clock() + HOUR);
        self.changed.notify_one();
    }

    /// Deletes of the last hour; [`UNKNOWN`] while they are not known.
    pub fn recent_deletes(&self) -> usize {
        if self.lost_within(HOUR) {
            return UNKNOWN;
        }
        let now = self.clock();
        let mut deletes = lock(&self.deletes);
        deletes.retain(|until| now < *until);
        deletes.len()
    }

    /// The brake's question for witnessed deletes: all that left is looked at together.
    pub fn scale_of_departures(&self) -> Scale {
        let now = self.clock();
        let (local_vms, most_vms) = self.look(|i| (i.view.vms.len(), i.most_vms(now)));
        Scale {
            candidates: lock(&self.departed).len().max(1),
            recent: self.recent_deletes(),
            listed: usize::try_from(self.status.get(Count::Listed)).unwrap_or(usize::MAX),
            local_vms,
            most_vms,
        }
    }

    /// Takes the departures' brake off the board once it keeps none of them.
    pub(crate) fn unbrake_departures(&self) {
        if lock(&self.departed).braked().is_empty() {
            self.status.brake(DEPARTURES, None);
        }
    }

    /// What the brake keeps of a pass, for offers.
    pub fn keep_braked(&self, kept: BTreeMap<MacAddr, String>) {
        *lock(&self.braked) = kept;
    }

    /// Everything that the brake keeps, of passes and of departures.
    pub fn all_braked(&self) -> BTreeMap<MacAddr, String> {
        let mut all = lock(&self.braked).clone();
        all.extend(lock(&self.departed).braked());
        all
    }

    /// Offers these records, as they were read, for approval.
    pub fn offer(&self, pairs: BTreeMap<MacAddr, String>) -> Option<Offer> {
        lock(&self.approvals).offer(pairs, self.clock())
    }

    /// The latest offer that can be approved, and for how much longer.
    pub fn offered(&self) -> Option<(Offer, Duration)> {
        let now = self.clock();
        let approvals = lock(&self.approvals);
        let offer = approvals.latest(now)?.clone();
        let left = VALID.saturating_sub(now.saturating_sub(offer.made));
        Some((offer, left))
    }

    /// The operator approves an offer; gives its size. Passes and departures go on at once.
    ///
    /// # Errors
    /// When the id names no offer that still holds.
    pub fn approve(&self, id: &str) -> Result<usize, Refused> {
        let now = self.clock();
        let approved = lock(&self.approvals).approve(id, now)?;
        lock(&self.departed).unbrake(now);
        self.approved.notify_one();
        Ok(approved)
    }

    /// Has the operator approved this record as it is?
    pub fn is_approved(&self, mac: MacAddr, etag: Option<&str>) -> bool {
        etag.is_some_and(|etag| lock(&self.approvals).covers(mac, etag, self.clock()))
    }

    /// Addresses that the operator approved.
    pub fn approved_macs(&self) -> BTreeSet<MacAddr> {
        lock(&self.approvals).macs(self.clock()).collect()
    }
}
