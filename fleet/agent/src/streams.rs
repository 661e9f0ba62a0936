// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The task that makes the streams, where the operator's key is configured: a stream that was deleted comes back
//! empty, and every agent then fills it by comparison. A `VMS` that stands still though `CHANGES` has more gets another
//! leader, and where that does not help it is made again. Servers that do not have the same messages get what the
//! fullest one has; what that one lacks, the nodes find. One that stays behind gets a new copy. It also removes old
//! tombstones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sdc_clients::fleet::{
    COMPARED, Comparison, Fleet, FleetError, Health, Made, Shape, Sourcing, Still, VMS, again,
    compare, level, make, renew, step_down, sweep as tombstones,
};
use tokio::time::{Instant, sleep};

use crate::parts::Parts;
use crate::publish::CHECKS;
use crate::status::{Differ, Own, State, Task};

/// Between two readings.
const EVERY: Duration = Duration::from_secs(15);
/// How long `VMS` may stand still, longer than an election takes, until its leader steps down, and until it is made
/// again.
const STEPS_DOWN: Duration = Duration::from_secs(40);
const AGAIN: Duration = Duration::from_secs(100);
/// How long a server may be behind, longer than it takes to get a whole stream, until it gets its copy anew.
const RENEWS: Duration = Duration::from_secs(1800);
/// Between two sweeps of tombstones.
const SWEEPS: Duration = Duration::from_secs(6 * 3600);

/// Makes what is missing, for ever.
pub(crate) async fn run(parts: Arc<Parts>, jetstream: Fleet, shape: Shape) {
    let mut retry = parts.retry();
    let mut sweep = Instant::now() + parts.random.around(SWEEPS, 0.5);
    let (mut watch, mut behind) = (Watch::default(), Behind::default());
    let between = parts.config.times.audit / CHECKS;
    let mut comparison = Instant::now() + parts.random.around(between, 0.25);
    loop {
        let read = async {
            let done = make(jetstream.jetstream(), &shape).await?;
            let sourcing = Sourcing::read(jetstream.jetstream()).await?;
            Ok::<_, FleetError>((done, sourcing, jetstream.health().await?))
        };
        let wait = match read.await {
            Ok((done, sourcing, health)) => {
                for (stream, made) in done.into_iter().filter(|(_, made)| *made != Made::Kept) {
                    tracing::warn!(stream, "{made}");
                }
                if Instant::now() >= sweep {
                    sweep = Instant::now() + parts.random.around(SWEEPS, 0.1);
                    swept(&jetstream, &shape).await;
                }
                retry.reset();
                let is_full = health.iter().any(|it| it.full);
                let (still, cure) = watch.update(&sourcing, is_full, Instant::now());
                parts.tell(|told| told.still = still);
                parts.status.is(Task::Streams, state(is_full, still, parts.told().differ));
                if let Some(cure) = cure {
                    cured(&jetstream, &shape, cure).await;
                }
                for (stream, server) in behind.update(&health, Instant::now()) {
                    renewed(&jetstream, stream, &server).await;
                }
                if Instant::now() >= comparison {
                    compared(&parts, &jetstream).await;
                    comparison = Instant::now() + parts.random.around(between, 0.25);
                }
                parts.random.around(EVERY, 0.1)
            }
            Err(error) => {
                let said = parts.status.failed(&jetstream.explain(error));
                parts.status.is(Task::Streams, State::Own(Own::Feed(said)));
                retry.next_delay()
            }
        };
        sleep(wait).await;
    }
}

fn state(is_full: bool, still: Duration, differ: Differ) -> State {
    let stands = (still >= STEPS_DOWN).then_some(Own::Still);
    let own = is_full.then_some(Own::Full).or(stands);
    let own = own.or_else(|| (!differ.is_empty()).then_some(Own::Differ(differ)));
    own.map_or(State::Resting, State::Own)
}

/// What is done about a `VMS` that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    StepDown,
    Again,
}

/// Since when `VMS` stands still, and what was done about it. Pure.
#[derive(Debug, Default)]
struct Watch {
    still: Still,
    stepped_down: bool,
}

impl Watch {
    /// Takes a reading in; returns for how long it stands still, and what is to be done now.
    fn update(
        &mut self,
        sourcing: &Sourcing,
        is_full: bool,
        now: Instant,
    ) -> (Duration, Option<Cure>) {
        let still = self.still.update(sourcing, now);
        // Another leader has no more room, and one that is made again has less of the others' VMs.
        if still < STEPS_DOWN || is_full {
            self.stepped_down &= still > Duration::ZERO;
            return (still, None);
        }
        if still >= AGAIN {
            *self = Watch::default();
            return (still, Some(Cure::Again));
        }
        let is_first = !std::mem::replace(&mut self.stepped_down, true);
        (still, is_first.then_some(Cure::StepDown))
    }
}

/// What fails is tried again for as long as it stands still.
async fn cured(fleet: &Fleet, shape: &Shape, cure: Cure) {
    let (done, word) = match cure {
        Cure::StepDown => (step_down(fleet.jetstream(), VMS).await, "told its leader to step down"),
        Cure::Again => (again(fleet.jetstream(), shape).await, "made it again"),
    };
    match done {
        Ok(()) => tracing::warn!("VMS stood still though CHANGES has more; {word}"),
        Err(error) => tracing::warn!("cannot make VMS move; readers see old VMs: {error}"),
    }
}

/// Since when which server of a stream is there and behind. Pure.
#[derive(Debug, Default)]
struct Behind(BTreeMap<(&'static str, String), Instant>);

impl Behind {
    /// Takes a reading in; returns those that have been for so long that they stay so.
    fn update(&mut self, all: &[Health], now: Instant) -> Vec<(&'static str, String)> {
        let of = |health: &Health| {
            let stream = health.stream;
            health.behind.clone().into_iter().map(move |server| (stream, server))
        };
        self.0 = all
            .iter()
            .flat_map(of)
            .map(|it| (self.0.get(&it).copied().unwrap_or(now), it))
            .map(|(since, it)| (it, since))
            .collect();
        let stay = self.0.iter().filter(|(_, since)| now.duration_since(**since) >= RENEWS);
        stay.map(|(it, _)| it.clone()).collect()
    }
}

/// What fails is tried again for as long as it is behind.
async fn renewed(fleet: &Fleet, stream: &'static str, server: &str) {
    match renew(fleet, stream, server).await {
        Ok(()) => tracing::warn!(stream, server, "it stayed behind; it gets a new copy"),
        Err(error) => tracing::warn!(
            stream,
            server,
            "it stays behind, and no other server may be stopped; cannot give it a new copy: {error}"
        ),
    }
}

/// Gives the servers the same where they do not have it. What fails is tried at the next comparison.
async fn compared(parts: &Parts, fleet: &Fleet) {
    for stream in COMPARED {
        let found = match compare(fleet, stream).await {
            Ok(Comparison::Differ(found)) => found,
            Ok(Comparison::Same) => {
                parts.tell(|told| told.differ.found(stream, 0));
                continue;
            }
            Ok(Comparison::Unknown) => continue,
            Err(error) => {
                tracing::info!(stream, "cannot compare what the servers have: {error}");
                continue;
            }
        };
        // Until a comparison finds that they have the same.
        parts.tell(|told| told.differ.found(stream, found.count));
        let (count, from, to) = (found.count, &found.fullest, found.others.join(", "));
        match level(fleet, stream, &found).await {
            Ok(()) => {
                tracing::warn!(
                    stream,
                    count,
                    from,
                    to,
                    "the servers had different messages; those named get what the fullest has"
                );
            }
            Err(error) => tracing::warn!(
                stream,
                count,
                "the servers have different messages, and readers get those of one; cannot give each the same: {error}"
            ),
        }
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

#[cfg(test)]
mod tests {
    use sdc_clients::fleet::CHANGES;

    use super::*;

    #[test]
    fn a_difference_is_told_until_a_comparison_finds_none() {
        // N31
        let mut differ = Differ::default();
        differ.found(CHANGES, 3);
        differ.found(VMS, 1);
        let told = state(false, Duration::ZERO, differ.clone()).to_string();
        assert!(told.contains("different messages (3 of CHANGES, 1 of VMS)"), "{told}");
        assert_eq!(state(false, STEPS_DOWN, differ.clone()), State::Own(Own::Still));
        assert_eq!(state(true, STEPS_DOWN, differ.clone()), State::Own(Own::Full));
        differ.found(CHANGES, 0);
        assert_eq!(differ.sum(), 1);
        differ.found(VMS, 0);
        assert_eq!(state(false, Duration::ZERO, differ), State::Resting);
    }

    #[test]
    fn a_server_that_stays_behind_gets_a_new_copy() {
        // N35
        let (mut watch, begin) = (Behind::default(), Instant::now());
        let mut update = |behind: &[&str], away: &[&str], minute: u64| {
            let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            let health = Health {
                stream: CHANGES,
                messages: 1,
                bytes: 1,
                leader: Some("a".to_owned()),
                behind: names(behind),
                away: names(away),
                too_few: 0,
                lag: 0,
                full: false,
            };
            watch.update(&[health], begin + Duration::from_secs(60 * minute))
        };
        let is = |server: &str| vec![(CHANGES, server.to_owned())];
        assert_eq!(update(&["b"], &["c"], 0), []);
        assert_eq!(update(&["b"], &["c"], 29), []);
        assert_eq!(update(&["b", "c"], &[], 30), is("b"), "c has just come back");
        assert_eq!(update(&["c"], &[], 31), []);
        assert_eq!(update(&["b", "c"], &[], 59), [], "b was not behind in between");
        assert_eq!(update(&["b", "c"], &[], 60), is("c"));
    }

    #[test]
    fn a_vms_that_stands_still_gets_another_leader_and_is_then_made_again() {
        // N29
        let (mut watch, begin) = (Watch::default(), Instant::now());
        let mut update = |place, last, second| {
            watch.update(&Sourcing { place, last }, false, begin + Duration::from_secs(second)).1
        };
        let stands: Vec<_> = (0..8).map(|nth| update(5, 9 + nth, 15 * nth)).collect();
        let (down, again) = (Some(Cure::StepDown), Some(Cure::Again));
        assert_eq!(stands, [None, None, None, down, None, None, None, again]);
        // Made again, it begins at the beginning; it moves, and then does not.
        assert_eq!(update(0, 17, 110), None);
        assert_eq!(update(17, 17, 120), None);
        assert_eq!(
            [200, 239, 245, 250].map(|second| update(17, 18, second)),
            [None, None, down, None]
        );
    }

    #[test]
    fn a_vms_that_is_full_is_not_made_again_however_long_it_takes_nothing() {
        // N40
        let (mut watch, begin) = (Watch::default(), Instant::now());
        for second in (0..3600).step_by(15) {
            let (sourcing, now) =
                (Sourcing { place: 5, last: 9 }, begin + Duration::from_secs(second));
            assert_eq!(watch.update(&sourcing, true, now), (Duration::from_secs(second), None));
        }
    }
}
