// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How far `VMS` has come in `CHANGES`, and whether it moves. What the server says of it, `lag`, is the distance when
//! it last took a message: a server that does not ask for the next one says 0 for ever.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{RawMessageError, RawMessageErrorKind};
use tokio::time::{Instant, sleep};

use super::error::FleetError;
use super::name::{CHANGES, VMS};

/// What a server adds to a message of a stream that is sourced from another.
pub(super) const SOURCE: &str = "Nats-Stream-Source";
/// A place that has not moved for so long stands still.
const STANDS: Duration = Duration::from_secs(10);
/// Between two readings.
const LOOK: Duration = Duration::from_secs(2);

/// How far `VMS` has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sourcing {
    /// The message of `CHANGES` that it took last; 0: none.
    pub place: u64,
    /// The last one that `CHANGES` has. It is read after the place: what is published meanwhile lets `VMS` seem to be
    /// behind, never ahead.
    pub last: u64,
}

impl Sourcing {
    /// Reads it.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn read(jetstream: &Context) -> Result<Sourcing, FleetError> {
        let vms = jetstream.get_stream_no_info(VMS).await.map_err(FleetError::away)?;
        let place = match vms.get_last_raw_message_by_subject("vms.>").await {
            Ok(last) => last.headers.get(SOURCE).and_then(|it| source_seq(it.as_str())),
            Err(error) if matches!(error.kind(), RawMessageErrorKind::NoMessageFound) => None,
            Err(error) => return Err(refused(&error, VMS)),
        };
        let changes = jetstream.get_stream(CHANGES).await.map_err(FleetError::away)?;
        let last = changes.cached_info().state.last_sequence;
        Ok(Sourcing { place: place.unwrap_or(0), last })
    }

    /// How many messages of `CHANGES` it lacks.
    pub fn lag(&self) -> u64 {
        self.last.saturating_sub(self.place)
    }

    /// Its place is behind the end of `CHANGES`: that is another stream, or one that was restored to an earlier state.
    pub(super) fn is_ahead(&self) -> bool {
        self.place > self.last
    }
}

fn refused(error: &RawMessageError, stream: &str) -> FleetError {
    match error.kind() {
        RawMessageErrorKind::JetStream(refused) => {
            FleetError::of_code(refused.error_code().0, &refused.to_string(), stream)
        }
        _ => FleetError::away(error),
    }
}

/// Reads the number in the sourced stream: the second word of the header.
pub(super) fn source_seq(header: &str) -> Option<u64> {
    header.split_whitespace().nth(1)?.parse().ok()
}

/// Sees how long `VMS` has stood still though `CHANGES` has more. Pure.
#[derive(Debug, Default)]
pub struct Still(Option<(u64, Instant)>);

impl Still {
    /// Takes a reading in; returns for how long it has not moved.
    pub fn update(&mut self, sourcing: &Sourcing, now: Instant) -> Duration {
        match self.0 {
            Some((place, since)) if place == sourcing.place && sourcing.lag() > 0 => {
                now.duration_since(since)
            }
            _ => {
                self.0 = (sourcing.lag() > 0).then_some((sourcing.place, now));
                Duration::ZERO
            }
        }
    }
}

/// Polls until `VMS` has moved, lacks nothing, or has stood still for 10 s; returns whether it stands still.
///
/// # Errors
/// If the feed does not answer.
pub async fn stands_still(jetstream: &Context) -> Result<bool, FleetError> {
    let mut still = Still::default();
    let began = Sourcing::read(jetstream).await?;
    still.update(&began, Instant::now());
    let mut now = began;
    while now.place == began.place && now.lag() > 0 {
        sleep(LOOK).await;
        now = Sourcing::read(jetstream).await?;
        if still.update(&now, Instant::now()) >= STANDS {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_the_source_is_read_as_each_server_writes_it() {
        assert_eq!(source_seq("CHANGES 12"), Some(12));
        assert_eq!(source_seq("CHANGES:a1b2 12 > >"), Some(12));
        assert_eq!(source_seq("CHANGES"), None);
    }

    #[test]
    fn what_lacks_messages_and_does_not_move_stands_still() {
        // N29
        let (mut still, begin) = (Still::default(), Instant::now());
        let mut update = |place, last, second| {
            still.update(&Sourcing { place, last }, begin + Duration::from_secs(second)).as_secs()
        };
        assert_eq!(update(5, 9, 0), 0);
        assert_eq!(update(5, 12, 30), 30);
        assert_eq!(update(6, 12, 31), 0, "it moves");
        assert_eq!(update(6, 12, 40), 9);
        assert_eq!(update(12, 12, 50), 0);
        assert_eq!(update(12, 12, 90), 0, "it lacks nothing");
        assert_eq!(update(12, 13, 91), 0, "it has lacked one for no time");
        assert_eq!(update(9, 13, 99), 0, "another VMS");
    }
}
