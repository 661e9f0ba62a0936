// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The publisher: one publish at a time, each acknowledged before the next, so that what the feed has of this node is
//! always the beginning of what happened. After any cut the feed is asked for its last message, and publishing begins
//! behind it.

mod compare; // the node against the feed

mod lost; // whether the feed still has what it acknowledged

mod send; // one message, whatever its subject has

mod publisher; // its state

use std::sync::Arc;

use sdc_clients::fleet::{CHANGES, FleetError, Position, VMS, subjects_of};
use tokio::time::{Instant, sleep, sleep_until};

use self::compare::View;
use self::publisher::{Cut, Publisher, Sent};
use crate::hub::{Following, HubError};
use crate::parts::Parts;
use crate::reduce::{Line, Start, Why, line, start};
use crate::status::{Count, Own, State, Task};

/// How often between two audits it is checked that `VMS` still has the node, and that the servers have the same.
pub(crate) const CHECKS: u32 = 12;

/// Publishes, for ever.
pub(crate) async fn run(parts: Arc<Parts>) {
    let mut retry = parts.retry();
    let mut publisher =
        Publisher { parts: &parts, sent: Sent::default(), published: None, marker: None };
    loop {
        let mut holds = parts.holds.subscribe();
        // The sender lives as long as the parts.
        if holds.wait_for(|holds| *holds).await.is_err() {
            return;
        }
        let begun = Instant::now();
        publisher.sent = Sent::default();
        // Both arms are cancel-safe: a request that is dropped may be carried out, as after any cut.
        let cut = tokio::select! {
            cut = publisher.publish() => cut,
            _ = holds.wait_for(|holds| !holds) => Cut::Lost,
        };
        parts.status.count(Count::Cuts);
        parts.tell(|told| told.position = None);
        match &cut {
            Cut::Feed(error) => {
                let said = parts.status.failed(error);
                parts.status.is(Task::Publisher, State::Own(Own::Feed(said)));
            }
            Cut::Hub(error) => {
                let said = parts.status.failed(error);
                parts.status.is(Task::Publisher, State::NoAnswer(said));
            }
            Cut::Lost => continue,
        }
        if begun.elapsed() > parts.config.times.retry.max {
            retry.reset();
        }
        sleep(retry.next_delay()).await;
    }
}

impl Publisher<'_> {
    /// Publishes until something fails.
    async fn publish(&mut self) -> Cut {
        match self.publishing().await {
            Ok(never) => match never {},
            Err(cut) => cut,
        }
    }

    async fn publishing(&mut self) -> Result<std::convert::Infallible, Cut> {
        let mut at = match self.place().await? {
            Start::Behind(at) => at,
            Start::Compare(why) => self.compare(why).await?,
        };
        self.published = Some(at.clone());
        loop {
            let why = match self.parts.hub.behind(&at).await? {
                Some(following) => self.follow(at, following).await?,
                None => Why::Gone,
            };
            at = self.compare(why).await?;
            self.published = Some(at.clone());
        }
    }

    /// Where the feed is. The last message of the node may be gone from `CHANGES` by age.
    async fn place(&mut self) -> Result<Start, FleetError> {
        if self.is_lost().await? {
            return Ok(Start::Compare(Why::Nothing));
        }
        let (feed, all) = (&self.parts.feed, subjects_of(&self.parts.cn_uuid));
        let last = match feed.last(CHANGES, &all).await? {
            None => feed.last(VMS, &all).await?,
            last => last,
        };
        Ok(start(last.as_ref()))
    }

    /// Publishes the lines behind `at`. Returns why a comparison is due.
    async fn follow(&mut self, mut at: Position, mut following: Following) -> Result<Why, Cut> {
        let parts = self.parts;
        let first = line(&following.first().await?, &parts.redaction);
        if first != Some(Line::Resume(at.clone())) {
            return Err(HubError::Elsewhere.into());
        }
        let at = &mut at;
        parts.tell(|told| told.position = Some(at.clone()));
        parts.status.is(Task::Publisher, State::Resting);
        let after = |span| Instant::now() + parts.random.around(span, 0.25);
        let times = (parts.config.times.audit, parts.config.times.audit / CHECKS);
        let (mut audit, mut check) = (after(times.0), after(times.1));
        // A snapshot waits until everything that it contains is published.
        let mut view: Option<View> = None;
        loop {
            if self.sent.went_back {
                return Ok(Why::WentBack);
            }
            // One event further, and the snapshot is older than the feed.
            if let Some(due) = view.take_if(|view| at.has(&view.snapshot.at))
                && due.snapshot.at == *at
            {
                self.compare_with(due, Why::Audit).await?;
            }
            // All arms are cancel-safe.
            let text = tokio::select! {
                text = following.next() => text?,
                () = sleep_until(check) => {
                    check = after(times.1);
                    if self.is_lost().await? {
                        return Ok(Why::Nothing);
                    }
                    if self.has_lost().await? {
                        return Ok(Why::WentBack);
                    }
                    continue;
                }
                () = sleep_until(audit) => {
                    audit = after(times.0);
                    view = Some(self.view().await?).filter(|view| view.snapshot.at.epoch == at.epoch);
                    continue;
                }
            };
            match line(&text, &parts.redaction) {
                Some(Line::Event(event)) => {
                    let next = event.labels.at.clone();
                    self.event(event).await?;
                    *at = next;
                }
                Some(Line::Nameless(next)) => {
                    parts.status.count(Count::Nameless);
                    *at = next;
                }
                Some(Line::Resume(_) | Line::Other) => continue,
                None => {
                    parts.status.count(Count::Unreadable);
                    tracing::warn!(
                        bytes = text.len(),
                        "skipped a line of vminfod's stream: not an event"
                    );
                    continue;
                }
            }
            parts.tell(|told| told.position = Some(at.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
