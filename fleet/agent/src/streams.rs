// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The task that makes the streams, where the operator's key is configured: a stream that somebody deleted comes back
//! empty, and every agent then fills it by comparison.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::fleet::{Made, Shape, make};
use tokio::time::sleep;

use crate::parts::Parts;
use crate::status::{State, Task};

/// Between looks.
const EVERY: Duration = Duration::from_secs(30);

/// Makes what is missing, for ever.
pub(crate) async fn run(parts: Arc<Parts>, jetstream: sdc_clients::fleet::Fleet, shape: Shape) {
    let mut retry = parts.retry();
    loop {
        let wait = match make(jetstream.jetstream(), &shape).await {
            Ok(done) => {
                for (stream, made) in done.into_iter().filter(|(_, made)| *made != Made::Kept) {
                    tracing::warn!(stream, "{made}");
                }
                retry.reset();
                parts.status.is(Task::Streams, State::Following);
                parts.random.around(EVERY, 0.1)
            }
            Err(error) => {
                let said = parts.status.failed(&error);
                parts.status.is(Task::Streams, State::Feed(said));
                retry.next_delay()
            }
        };
        sleep(wait).await;
    }
}
