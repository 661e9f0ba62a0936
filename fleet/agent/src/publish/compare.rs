// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node against the feed: what differs is published, and then a marker, since what happened between is unknown.

use std::collections::BTreeSet;

use sdc_clients::fleet::{CHANGES, MARKER, Position, VMS, subject, subjects_of};
use sdc_clients::vminfod::{VmFields as _, VmObject};

use super::publisher::{Cut, Publisher, Sent};
use crate::reduce::{Snapshot, Why, vm_uuid};
use crate::status::{Count, Own, State, Task};

/// What the node shows.
pub(super) struct View {
    pub(super) snapshot: Snapshot,
    vms: Vec<VmObject>,
}

impl Publisher<'_> {
    pub(super) async fn view(&self) -> Result<View, Cut> {
        let (at, vms, incomplete) = self.parts.hub.snapshot().await?;
        let date = format!("{:.3}", daemon::wall::now());
        Ok(View { snapshot: Snapshot { at, date, incomplete }, vms })
    }

    /// Compares the node with the feed; returns the event behind which publishing goes on.
    pub(super) async fn compare(&mut self, why: Why) -> Result<Position, Cut> {
        self.parts.status.is(Task::Publisher, State::Own(Own::Comparing(why.to_string())));
        let view = self.view().await?;
        let at = view.snapshot.at.clone();
        // Of another stream the numbers say nothing.
        let unseen = std::mem::take(&mut self.sent.unseen);
        self.sent = Sent { unseen, ..Sent::default() };
        self.compare_with(view, why).await?;
        Ok(at)
    }

    /// Publishes what differs, then the marker: a comparison that is cut has none, and is made again. An audit that
    /// finds nothing is not told.
    pub(super) async fn compare_with(&mut self, view: View, why: Why) -> Result<(), Cut> {
        let View { snapshot, vms } = view;
        self.parts.status.count(Count::Comparisons);
        let (mut differ, mut shown) = (0_usize, BTreeSet::new());
        // Before the VMs are read: what is published meanwhile is this program's own.
        let mut known = self.known().await?;
        for mut vm in vms {
            let Some(uuid) = vm.uuid().and_then(vm_uuid) else { continue };
            // Of two zones with one uuid the first one is the VM, as in vminfod's list.
            if !shown.insert(uuid.clone()) {
                continue;
            }
            known.remove(&uuid);
            self.parts.redaction.object(&mut vm);
            let is_other =
                self.settle(&uuid, |stored| snapshot.difference(&uuid, &vm, stored)).await?;
            differ += usize::from(is_other);
        }
        for uuid in known {
            let is_ghost = self.settle(&uuid, |stored| snapshot.ghost(&uuid, stored)).await?;
            differ += usize::from(is_ghost);
        }
        let vms = shown.len() as u64;
        if differ > 0 {
            // A marker of the same event may be there: it does not tell of these.
            let marker = subject(&self.parts.cn_uuid, None);
            let last = self.parts.feed.last(CHANGES, &marker).await?.map_or(0, |last| last.seq);
            self.sent.last.insert(marker, last);
        }
        if why != Why::Audit || differ > 0 {
            self.event(snapshot.marker(why)).await?;
            tracing::info!(reason = %why, vms, differ, "compared with the feed");
        }
        // It was judged: what readers were to see of it was published, or they see it.
        self.sent.unseen.retain(|_, unseen| !unseen.is_lost());
        self.parts.tell(|told| told.vms = vms);
        Ok(())
    }

    /// The VMs of which either stream has a message: `VMS` may be behind `CHANGES`, and has what that lost by age.
    async fn known(&self) -> Result<BTreeSet<String>, Cut> {
        let all = subjects_of(&self.parts.cn_uuid);
        let mut known = BTreeSet::new();
        for stream in [CHANGES, VMS] {
            let subjects = self.parts.feed.subjects(stream, &all).await?;
            let last = |subject: &String| subject.rsplit('.').next().map(str::to_owned);
            known.extend(subjects.iter().filter_map(last).filter(|vm| vm != MARKER));
        }
        Ok(known)
    }
}
