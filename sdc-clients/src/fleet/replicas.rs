// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether the servers of a stream have the same messages under the same numbers. nats-server 2.9.10 does not know:
//! after about a dozen deaths of servers each had others, each said to be current, and a reader got the answer of one
//! of them.

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
use super::read::{Fleet, late, on};
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

/// What was found out about the servers of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// Nothing: one is away or behind, or it is on too few, which [`Fleet::health`] tells, and passes.
    Unknown,
    /// They have the same.
    Same,
    /// They have not.
    Differ(Differences),
}

impl Comparison {
    /// Under how many numbers they do not have the same.
    pub fn count(&self) -> usize {
        match self {
            Comparison::Differ(found) => found.count,
            Comparison::Unknown | Comparison::Same => 0,
        }
    }
}

/// How the servers of a stream differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differences {
    /// Under how many numbers one has another message, or none.
    pub count: usize,
    /// The server that lacks fewest.
    pub fullest: String,
    /// Those that do not have what it has.
    pub others: Vec<String>,
}

/// Compares what the servers of `CHANGES` or `VMS` have, now and a while later.
///
/// # Errors
/// If the feed does not answer.
pub async fn compare(fleet: &Fleet, stream: &'static str) -> Result<Comparison, FleetError> {
    let Some(before) = views(fleet, stream).await? else { return Ok(Comparison::Unknown) };
    let before = differences(&before.all);
    if before.is_empty() {
        return Ok(Comparison::Same);
    }
    sleep(PAUSE).await;
    let Some(now) = views(fleet, stream).await? else { return Ok(Comparison::Unknown) };
    let both = differences(&now.all).intersection(&before).cloned().collect();
    Ok(judge(&now.names, &now.leader, &both))
}

/// What each server has, in the order of the names.
struct Views {
    leader: String,
    names: Vec<String>,
    all: Vec<View>,
}

/// Returns what each server has; none where not each can be asked.
async fn views(fleet: &Fleet, stream: &'static str) -> Result<Option<Views>, FleetError> {
    let info = fleet.stream(stream).await?.cached_info().clone();
    // A leader that has just begun may not name each.
    let is_short = on(&info) < info.config.num_replicas;
    let Some(cluster) = info.cluster else { return Ok(None) };
    let others = cluster.replicas;
    if is_short || others.iter().any(|it| it.offline || !it.current) {
        return Ok(None);
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
            let (names, all) = views.into_iter().unzip();
            return Ok(Some(Views { leader: cluster.leader.unwrap_or_default(), names, all }));
        }
        let mut reading = fleet.begin(stream, "vms.*.*", from(), Part::Headers).await?;
        if let Entry::Vacant(server) = views.entry(reading.server.clone()) {
            server.insert(view(&mut reading, last).await?);
        }
    }
    Ok(None)
}

/// Reads what a server has now, also behind the last one of the leader; on a busy stream that has no end.
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

/// Names the fullest server: the one that lacks fewest numbers, of several the one that has the latest, of those the
/// one that leads. So a message that any server has is kept where one server has all.
fn judge(names: &[String], leader: &str, found: &BTreeSet<Difference>) -> Comparison {
    let of = |nth: usize| found.iter().map(move |(number, all)| (number, all.get(nth).copied()));
    let rank = |nth: &usize| {
        let has = |(number, hash): (_, Option<Option<u64>>)| hash.flatten().map(|_| number);
        let had = of(*nth).filter_map(has);
        let is_led = names.get(*nth).is_some_and(|name| name == leader);
        (had.clone().count(), had.max(), is_led)
    };
    let Some(fullest) = (0..names.len()).max_by_key(rank).filter(|_| !found.is_empty()) else {
        return Comparison::Same;
    };
    let others = (0..names.len()).filter(|nth| !of(*nth).eq(of(fullest)));
    Comparison::Differ(Differences {
        count: found.len(),
        fullest: names.get(fullest).cloned().unwrap_or_default(),
        others: others.filter_map(|nth| names.get(nth).cloned()).collect(),
    })
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

    #[test]
    fn the_server_that_has_most_is_the_one_whose_messages_all_get() {
        // N31
        let names = ["a", "b", "c"].map(str::to_owned);
        let judged = |leader: &str, found: &[(u64, [Option<u64>; 3])]| {
            let found = found.iter().map(|(number, all)| (*number, all.to_vec())).collect();
            match judge(&names, leader, &found) {
                Comparison::Differ(found) => (found.count, found.fullest, found.others.join(" ")),
                other => panic!("{other:?}"),
            }
        };
        let is =
            |count, fullest: &str, others: &str| (count, fullest.to_owned(), others.to_owned());
        let (some, none) = (Some(1), None);
        assert_eq!(judged("a", &[(7, [none, some, some])]), is(1, "c", "a"), "the leader lost one");
        assert_eq!(judged("b", &[(7, [none, some, some])]), is(1, "b", "a"));
        assert_eq!(judged("b", &[(7, [some, none, none])]), is(1, "a", "b c"));
        let each_another = [(7, [some, none, some]), (9, [some, some, none])];
        assert_eq!(judged("b", &each_another), is(2, "a", "b c"), "a has all");
        let replaced = [(3, [none, some, none]), (7, [some, none, some])];
        assert_eq!(judged("b", &replaced), is(2, "c", "b"), "what came later replaced it");
        let numbers = [(7, [Some(1), Some(2), Some(1)])];
        assert_eq!(judged("b", &numbers), is(1, "b", "a c"), "the one that is read");
        assert_eq!(judge(&names, "a", &BTreeSet::new()), Comparison::Same);
    }
}
