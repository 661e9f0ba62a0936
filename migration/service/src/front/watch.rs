// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /migrations/UUID/watch`: the events of a migration, one JSON object a line.

use std::time::Duration;

use bytes::Bytes;
use daemon::http::Body;
use futures_util::stream;
use uuid::Uuid;

use super::answer::{Answer, streamed, uuid};
use super::shared::Front;
use crate::params::Params;
use crate::state::Service;
use migration_core::progress::{Latest, Watch};
use migration_core::record::{Record, State};

/// Between two readings of the record.
const POLL: Duration = Duration::from_secs(1);
/// So long after its end a migration can be watched: CloudAPI begins a watch before it knows that there is one.
const LATELY: Duration = Duration::from_secs(600);

impl Front {
    /// Answers a watch. The headers go out at once; the lines follow from the store, whichever service writes it.
    pub async fn watch(&self, vm: &str, params: &Params) -> Answer {
        let record = match self.found(vm, params).await {
            Err(refused) if refused.status() == 404 => {
                let (records, now) = (&self.service.records, self.service.clock.now());
                records.ended_lately(uuid(vm)?, LATELY, now).await?.ok_or(refused)?
            }
            found => found?.record,
        };
        let (service, vm, id) = (self.service.clone(), record.vm_uuid, record.id);
        let ended = (!matches!(record.state, State::Running | State::Queued)).then_some(record);
        let watcher = Watcher { service, vm, id, watch: Watch::new(), is_first: true, ended };
        let lines = stream::unfold(watcher, async |mut watcher| {
            let lines = watcher.lines().await?;
            Some((Ok::<Bytes, std::io::Error>(lines), watcher))
        });
        Ok(streamed("application/x-json-stream", Body::from_stream(lines)))
    }
}

struct Watcher {
    service: Service,
    vm: Uuid,
    id: Uuid,
    watch: Watch,
    is_first: bool,
    /// The record, if nothing ran when the watch began: it may be gone.
    ended: Option<Record>,
}

impl Watcher {
    /// Returns the next lines; none after the end.
    async fn lines(&mut self) -> Option<Bytes> {
        loop {
            if self.watch.is_over() {
                return None;
            }
            if !std::mem::replace(&mut self.is_first, false) {
                tokio::time::sleep(POLL).await;
            }
            let (record, latest) = match self.read().await {
                Ok(seen) => seen,
                Err(error) => {
                    // Nothing is known: it is no end.
                    tracing::warn!(vm = %self.vm, reason = %error, "cannot read the record for a watch; trying again");
                    continue;
                }
            };
            let lines = self.watch.step(record.as_ref(), latest.as_ref(), self.service.clock.now());
            if !lines.is_empty() {
                let texts = lines.iter().map(|line| format!("{line}\n"));
                return Some(Bytes::from(texts.collect::<String>()));
            }
        }
    }

    async fn read(&self) -> Result<(Option<Record>, Option<Latest>), store::Error> {
        let kept = self.service.records.get(self.id).await?;
        let latest = self.service.records.news.event(self.vm).await?;
        Ok((kept.map(|kept| kept.record).or_else(|| self.ended.clone()), latest))
    }
}
