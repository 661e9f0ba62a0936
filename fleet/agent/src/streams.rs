// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The task that makes the streams, where the operator's key is configured: a stream that somebody deleted comes back
//! empty, and every agent then fills it by comparison. It also removes old tombstones.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::fleet::{Fleet, Made, Shape, make, sweep as tombstones};
use tokio::time::{Instant, sleep};

use crate::parts::Parts;
use crate::status::{Own, State, Task};

/// Between looks.
const EVERY: Duration = Duration::from_secs(30);
/// Between two sweeps of tombstones.
const SWEEPS: Duration = Duration::from_secs(6 * 3600);

/// Makes what is missing, for ever.
pub(crate) async fn run(parts: Arc<Parts>, jetstream: Fleet, shape: Shape) {
    let mut retry = parts.retry();
    let mut sweep = Instant::now() + parts.random.around(SWEEPS, 0.5);
    loop {
        let wait = match make(jetstream.jetstream(), &shape).await {
            Ok(done) => {
                for (stream, made) in done.into_iter().filter(|(_, made)| *made != Made::Kept) {
                    tracing::warn!(stream, "{made}");
                }
                if Instant::now() >= sweep {
                    sweep = Instant::now() + parts.random.around(SWEEPS, 0.1);
                    swept(&jetstream, &shape).await;
                }
                retry.reset();
                parts.status.is(Task::Streams, State::Resting);
                parts.random.around(EVERY, 0.1)
            }
            Err(error) => {
                let said = parts.status.failed(&error);
                parts.status.is(Task::Streams, State::Own(Own::Feed(said)));
                retry.next_delay()
            }
        };
        sleep(wait).await;
    }
}

/// Removes the tombstones that `CHANGES` does not have any more either. What fails is tried at the next sweep.
async fn swept(fleet: &Fleet, shape: &Shape) {
    match tombstones(fleet, daemon::wall::now(), shape.age).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed old tombstones from VMS"),
        Err(error) => tracing::warn!("cannot remove old tombstones from VMS: {error}"),
    }
}
