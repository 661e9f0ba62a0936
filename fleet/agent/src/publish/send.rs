// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One message: the first one of a subject since a cut is published only if the subject does not have it.

use sdc_clients::fleet::{CHANGES, FleetError, Kind, VMS, subject};

use super::publisher::Publisher;
use crate::reduce::{Found, Outgoing, found};
use crate::status::Count;

/// Room for the headers of a message.
const HEADERS: usize = 1024;

impl Publisher<'_> {
    /// Publishes an event, unless the feed has it.
    pub(super) async fn event(&mut self, event: Outgoing) -> Result<(), FleetError> {
        let (feed, status) = (&self.parts.feed, &self.parts.status);
        let subject = subject(&self.parts.cn_uuid, event.vm.as_deref());
        let last = match self.sent.last.get(&subject) {
            Some(seq) => *seq,
            // The first one since a cut: it may be there.
            None => match found(&event.labels, feed.last(CHANGES, &subject).await?.as_ref()) {
                Found::Already => {
                    status.count(Count::Already);
                    self.published = Some(event.labels.at);
                    return Ok(());
                }
                Found::Before(seq) => seq,
            },
        };
        let mut event = self.fitted(event);
        if event.labels.kind != Kind::Resync {
            event.labels.after.clone_from(&self.published);
        }
        let seq = feed.publish(&subject, &event.labels, event.body.clone(), last).await?;
        self.acknowledged(&subject, &event, seq);
        self.published = Some(event.labels.at.clone());
        status.published(match event.labels.kind {
            Kind::Resync => Count::Markers,
            _ => Count::Published,
        });
        Ok(())
    }

    /// Publishes what `judge` makes of the subject's last message in `CHANGES`, or in `VMS`, which readers read and
    /// which may have lost what `CHANGES` has; returns whether there was something to publish.
    pub(super) async fn settle(
        &mut self,
        vm: &str,
        judge: impl Fn(Option<&sdc_clients::fleet::Stored>) -> Option<Outgoing>,
    ) -> Result<bool, FleetError> {
        let feed = &self.parts.feed;
        let subject = subject(&self.parts.cn_uuid, Some(vm));
        let changes = feed.last(CHANGES, &subject).await?;
        let last = changes.as_ref().map_or(0, |stored| stored.seq);
        let shown = feed.last(VMS, &subject).await?;
        self.sent.last.insert(subject.clone(), last);
        // None in CHANGES: gone by age.
        let newest = changes.as_ref().or(shown.as_ref());
        let outgoing = match (judge(newest), judge(shown.as_ref())) {
            (Some(outgoing), _) => outgoing,
            (None, Some(outgoing)) if self.sent.has_lost(&subject) => outgoing,
            (None, is_behind) => {
                // It may be about to take it.
                if let (Some(_), Some(labels)) =
                    (is_behind, newest.and_then(|it| it.labels.as_ref()))
                {
                    self.sent.expect(&subject, &labels.at);
                }
                return Ok(false);
            }
        };
        let outgoing = self.fitted(outgoing);
        let seq = feed.publish(&subject, &outgoing.labels, outgoing.body.clone(), last).await?;
        self.acknowledged(&subject, &outgoing, seq);
        self.parts.status.published(Count::Differences);
        Ok(true)
    }

    fn acknowledged(&mut self, subject: &str, outgoing: &Outgoing, seq: u64) {
        match outgoing.labels.kind {
            Kind::Delete => self.sent.forget(subject),
            _ => drop(self.sent.last.insert(subject.to_owned(), seq)),
        }
        if outgoing.labels.kind == Kind::Resync {
            // Another one, possibly of the same event.
            self.marker = None;
        }
        self.sent.unseen.remove(subject);
        self.sent.expect(subject, &outgoing.labels.at);
        self.sent.went_back |= seq <= self.sent.newest;
        self.sent.newest = self.sent.newest.max(seq);
        let gone = u64::from(outgoing.labels.kind == Kind::Delete);
        let new = u64::from(outgoing.labels.kind == Kind::Create);
        self.parts.tell(|told| told.vms = (told.vms + new).saturating_sub(gone));
    }

    fn fitted(&self, outgoing: Outgoing) -> Outgoing {
        let most = self.parts.feed.largest().saturating_sub(HEADERS);
        if outgoing.body.len() > most {
            self.parts.status.count(Count::Shortened);
            tracing::warn!(
                vm = outgoing.vm,
                bytes = outgoing.body.len(),
                most,
                "a VM object is too large for the feed; publishing part of it"
            );
        }
        outgoing.fitted(most)
    }
}
