// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The heartbeats of the nodes as they come: the last one of each node first.

use async_nats::jetstream::consumer::DeliverPolicy;
use tokio::time::sleep;

use super::error::FleetError;
use super::follow::WAITS;
use super::name::KV_NODES;
use super::node::Node;
use super::read::{Beat, Fleet};
use super::reading::{Part, Reading};
use crate::jitter::Jitter;
use crate::retry::Backoff;

/// Follows the bucket of the nodes.
pub struct Beats {
    fleet: Fleet,
    backoff: Backoff,
    reading: Option<Reading>,
    /// How many heartbeats are still read that were there before.
    older: u64,
}

/// News of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A heartbeat.
    Beat {
        /// What it said.
        beat: Box<Beat>,
        /// It came now; otherwise it was there before this reading began.
        is_live: bool,
    },
    /// An operator has removed the node of this uuid.
    Forgotten(String),
    /// The feed was lost; it is tried again.
    Lost(FleetError),
}

impl std::fmt::Debug for Beats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beats").field("older", &self.older).finish_non_exhaustive()
    }
}

impl Beats {
    /// Follows the nodes of this feed.
    pub fn new(fleet: &Fleet, jitter: Jitter) -> Beats {
        let backoff = Backoff::new(&WAITS, jitter);
        Beats { fleet: fleet.clone(), backoff, reading: None, older: 0 }
    }

    /// Waits for the next news. Not cancel-safe before the first one after a loss: a beginning that is dropped begins
    /// anew.
    pub async fn next(&mut self) -> Heard {
        loop {
            match self.advance().await {
                Ok(Some(heard)) => return heard,
                Ok(None) => {}
                Err(error) => {
                    self.reading = None;
                    // These waits never end.
                    let wait = self.backoff.next_delay().unwrap_or(WAITS.max);
                    sleep(wait).await;
                    return Heard::Lost(self.fleet.explain(error));
                }
            }
        }
    }

    async fn advance(&mut self) -> Result<Option<Heard>, FleetError> {
        let Some(reading) = &mut self.reading else {
            let from = DeliverPolicy::LastPerSubject;
            let reading = self.fleet.begin(KV_NODES, "$KV.NODES.*", from, Part::Whole).await?;
            self.older = reading.pending;
            self.reading = Some(reading);
            return Ok(None);
        };
        let received = reading.next().await?;
        self.backoff.reset();
        let is_live = self.older == 0;
        self.older = self.older.saturating_sub(1);
        if received.body.is_empty() {
            let cn = received.subject.rsplit('.').next().unwrap_or_default();
            return Ok(Some(Heard::Forgotten(cn.to_owned())));
        }
        let Some(node) = Node::read(&received.subject, &received.body) else { return Ok(None) };
        let beat = Box::new(Beat { node, at: received.at, age: received.age });
        Ok(Some(Heard::Beat { beat, is_live }))
    }
}
