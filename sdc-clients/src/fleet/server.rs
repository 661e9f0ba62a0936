// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Leaves a server that does not answer any more: one that is cut off from the others keeps its connections, answers
//! some questions from its own copy, and can store nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::FleetError;
use super::link::Link;

/// How long there may be no answer: an election takes as long.
const FIRST: Duration = Duration::from_secs(10);
/// Without any answer the servers are asked in turn, each twice as long as the one before, up to this.
const LONGEST: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Silence {
    since: Option<Instant>,
    most: Duration,
}

impl Default for Silence {
    fn default() -> Silence {
        Silence { since: None, most: FIRST }
    }
}

impl Silence {
    fn is_over(&mut self) {
        *self = Silence::default();
    }

    /// Returns true if it lasts too long; the next one may last longer.
    fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_long = now.duration_since(since) >= self.most;
        if is_long {
            self.since = None;
            self.most = (2 * self.most).min(LONGEST);
        }
        is_long
    }
}

/// The server that a client is connected to.
#[derive(Debug, Clone)]
pub(super) struct Server {
    link: Link,
    silence: Arc<Mutex<Silence>>,
}

impl Server {
    pub(super) fn new(link: Link) -> Server {
        Server { link, silence: Arc::default() }
    }

    /// Takes note of the answer to a request that only servers in touch with each other answer; goes to another server
    /// where there was none for too long.
    pub(super) async fn answered<T>(&self, answer: Result<T, FleetError>) -> Result<T, FleetError> {
        let is_silent = matches!(answer, Err(FleetError::Away(_) | FleetError::NoStream(_)));
        let is_long = {
            let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_silent {
                silence.is_over();
            }
            is_silent && silence.goes_on(Instant::now())
        };
        if let Err(error) = &answer
            && is_long
        {
            let server = self.link.server_info().server_name;
            tracing::warn!(server, reason = %error, "cannot use the feed through this server; connecting to another one");
            // Only a client that has ended refuses.
            drop(self.link.force_reconnect().await);
        }
        answer.map_err(|error| self.explain(error))
    }

    /// See [`Link::explain`].
    pub(super) fn explain(&self, error: FleetError) -> FleetError {
        self.link.explain(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_lasts_is_left_and_the_next_one_may_last_longer() {
        // N24
        let (mut silence, start) = (Silence::default(), Instant::now());
        let mut left = Vec::new();
        for second in 0..400 {
            if silence.goes_on(start + Duration::from_secs(second)) {
                left.push(second);
            }
        }
        assert_eq!(left, [10, 31, 72, 153, 274, 395]);
        silence.is_over();
        assert!(!silence.goes_on(start + Duration::from_secs(500)));
        assert!(!silence.goes_on(start + Duration::from_secs(509)));
        assert!(silence.goes_on(start + Duration::from_secs(510)));
    }
}
