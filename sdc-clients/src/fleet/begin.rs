// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a follower begins: whether it can go on from its place in `CHANGES`, else with a snapshot of `VMS`.

use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::error::FleetError;
use super::event::Place;
use super::name::{CHANGES, VMS};
use super::read::Fleet;
use super::reading::{Part, Reading, Received};

/// How often it is looked whether `CHANGES` is still the same stream.
const LOOK: Duration = Duration::from_secs(15);

/// How `CHANGES` is now.
pub(super) struct Changes {
    pub(super) made: i128,
    pub(super) first: u64,
    last: u64,
}

impl Changes {
    fn is_behind(&self, place: &Place) -> bool {
        place.made == self.made && place.seq > self.last
    }

    /// Returns whether what comes behind this place can be read: this is not another stream, nor one that was restored
    /// to an earlier state, and the next message is not dropped.
    pub(super) fn has(&self, place: &Place) -> bool {
        let next = place.seq.saturating_add(1);
        place.made == self.made && place.seq <= self.last && self.first <= next
    }
}

async fn changes(fleet: &Fleet) -> Result<Changes, FleetError> {
    let stream = fleet.stream(CHANGES).await?;
    let info = stream.cached_info();
    Ok(Changes {
        made: info.created.unix_timestamp_nanos(),
        first: info.state.first_sequence,
        last: info.state.last_sequence,
    })
}

/// What a beginning came to.
pub(super) enum Begun {
    /// The server that answered ends before the place.
    Behind,
    /// What comes behind the place cannot be read.
    Hole,
    Follow {
        place: Place,
        /// With the last message of `CHANGES` when it was read, as the leader has it.
        snapshot: Option<(Vec<Received>, u64)>,
        reading: Box<Reading>,
    },
}

/// Goes on behind the last message; without one from a snapshot.
pub(super) async fn begin(
    fleet: Fleet,
    filter: String,
    place: Option<Place>,
    is_patient: bool,
) -> Result<Begun, FleetError> {
    // The stream first: a message that comes meanwhile is then read twice, never missed.
    let now = changes(&fleet).await?;
    let (place, snapshot) = match place {
        // A server that has just become the leader may be behind for a moment.
        Some(place) if now.is_behind(&place) && is_patient => return Ok(Begun::Behind),
        Some(place) if !now.has(&place) => return Ok(Begun::Hole),
        Some(place) => (place, None),
        None => {
            let held = fleet.latest(VMS, &filter, Part::Whole).await?;
            let seq = held.iter().filter_map(|it| Some(it.message.as_ref()?.seq)).max();
            let seq = seq.unwrap_or(0).max(now.first.saturating_sub(1));
            let last = fleet.last(CHANGES, &filter, &DeliverPolicy::All).await?;
            (Place { made: now.made, seq }, Some((held, last.unwrap_or(0))))
        }
    };
    let from = DeliverPolicy::ByStartSequence { start_sequence: place.seq.saturating_add(1) };
    let reading = fleet.begin(CHANGES, &filter, from, Part::Whole).await?;
    Ok(Begun::Follow { place, snapshot, reading: Box::new(reading) })
}

/// Looks at `CHANGES` after a while.
pub(super) fn later(fleet: &Fleet) -> BoxFuture<'static, Result<Changes, FleetError>> {
    let fleet = fleet.clone();
    Box::pin(async move {
        sleep(LOOK).await;
        changes(&fleet).await
    })
}
