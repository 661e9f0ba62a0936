// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether the servers of a stream have the same messages under the same numbers. nats-server 2.9.10 does not know: after
//! about a dozen deaths of servers each had others, each said to be current, and who read got the answer of one of them.

use std::collections::btree_map::Entry;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use tokio::time::{sleep, timeout};

use super::access::PATIENCE;
use super::error::FleetError;
use super::name::{CHANGES, VMS};
use super::read::{Fleet, late};
use super::reading::{Part, Reading, Received};

/// Of `CHANGES` the end is compared: a server that lost or gained one gives all that follow other numbers.
const LATEST: u64 = 1000;
/// Between two comparisons: what came or went meanwhile does not differ in the same way in both.
const PAUSE: Duration = Duration::from_secs(15);
/// Consumers that are made until each server was drawn to read: with 24 one of three is missed once in 6,000 times.
const DRAWS: u32 = 24;

/// The streams that are compared.
pub const COMPARED: [&str; 2] = [CHANGES, VMS];

/// The messages of a server, by number: what is left of each is a hash.
type View = BTreeMap<u64, u64>;
/// A number, and what each server has under it.
type Difference = (u64, Vec<Option<u64>>);

/// Returns how many numbers of `CHANGES` or `VMS` have another message, or none, on one server than on another, now and a
/// while later. 0 too where a server is away or behind: that is told by [`Fleet::health`], and passes.
///
/// # Errors
/// If the feed does not answer.
pub async fn disagreement(fleet: &Fleet, stream: &'static str) -> Result<usize, FleetError> {
    let before = differences(&views(fleet, stream).await?);
    if before.is_empty() {
        return Ok(0);
    }
    sleep(PAUSE).await;
    let now = differences(&views(fleet, stream).await?);
    Ok(before.intersection(&now).count())
}

/// Returns what each server has; none where not each can be asked.
async fn views(fleet: &Fleet, stream: &'static str) -> Result<Vec<View>, FleetError> {
    let info = fleet.stream(stream).await?.cached_info().clone();
    let others = info.cluster.map(|cluster| cluster.replicas).unwrap_or_default();
    if others.iter().any(|it| it.offline || !it.current) {
        return Ok(Vec::new());
    }
    let last = info.state.last_sequence;
    let from = || match stream {
        VMS => DeliverPolicy::All,
        _ => DeliverPolicy::ByStartSequence {
            start_sequence: last.saturating_sub(LATEST).max(info.state.first_sequence).max(1),
        },
    };
    let mut views = BTreeMap::new();
    for _ in 0..DRAWS {
        if views.len() > others.len() {
            return Ok(views.into_values().collect());
        }
        let mut reading = fleet.begin(stream, "vms.*.*", from(), Part::Headers).await?;
        if let Entry::Vacant(server) = views.entry(reading.server.clone()) {
            server.insert(view(&mut reading, last).await?);
        }
    }
    Ok(Vec::new())
}

/// Reads what a server has now, also behind the last one of who leads; on a busy stream that has no end.
async fn view(reading: &mut Reading, last: u64) -> Result<View, FleetError> {
    let mut view = View::new();
    let mut is_more = reading.pending > 0;
    while is_more {
        let received = timeout(PATIENCE, reading.next()).await.map_err(|_| late())??;
        view.insert(received.seq, mark(&received));
        is_more = received.pending > 0 && received.seq < last + LATEST;
    }
    Ok(view)
}

fn mark(received: &Received) -> u64 {
    let mut hasher = DefaultHasher::new();
    received.subject.hash(&mut hasher);
    if let Some(message) = &received.message {
        let at = &message.labels.at;
        (message.seq, message.labels.kind.name(), &at.epoch, at.seq).hash(&mut hasher);
    }
    hasher.finish()
}

fn differences(views: &[View]) -> BTreeSet<Difference> {
    let numbers: BTreeSet<u64> = views.iter().flat_map(|view| view.keys().copied()).collect();
    let of = |number| (number, views.iter().map(|view| view.get(&number).copied()).collect());
    let is_one = |(_, all): &Difference| all.windows(2).all(|pair| pair[0] == pair[1]);
    numbers.into_iter().map(of).filter(|difference| !is_one(difference)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_server_lacks_or_has_under_another_number_differs() {
        // N31
        let view = |all: &[(u64, u64)]| all.iter().copied().collect::<View>();
        let numbers = |views: &[View]| -> Vec<u64> {
            differences(views).into_iter().map(|(number, _)| number).collect()
        };
        let all = view(&[(1, 10), (2, 20), (3, 30)]);
        assert_eq!(numbers(&[]), [0; 0]);
        assert_eq!(numbers(&[all.clone(), all.clone(), all.clone()]), [0; 0]);
        assert_eq!(numbers(&[all.clone(), view(&[(1, 10), (3, 30)]), all.clone()]), [2]);
        assert_eq!(numbers(&[all, view(&[(1, 10), (2, 30)])]), [2, 3]);
    }
}
