// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many who come at once, and a service that is killed between any two writes.

use std::sync::atomic::AtomicUsize;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use store::{Call, Fault, Faults};

use super::*;

/// Each call to the store lets all others go on first; the service is killed at one commit, if any.
#[derive(Debug, Default)]
struct Crowded {
    commits: AtomicUsize,
    killed_at: Option<usize>,
}

impl Faults for Crowded {
    fn next(&self, call: Call) -> Fault {
        match call == Call::Commit {
            true if Some(self.commits.fetch_add(1, Ordering::SeqCst)) == self.killed_at => {
                Fault::Never
            }
            _ => Fault::None,
        }
    }

    fn held(&self, _: Call, _: bool) -> BoxFuture<'_, ()> {
        tokio::task::yield_now().boxed()
    }
}

async fn crowded(store: &Store, killed_at: Option<usize>) -> World {
    let faults = Crowded { killed_at, ..Crowded::default() };
    let world = world_on(&store.with_faults(Arc::new(faults)), None).await;
    world.enrolment.refresh().await.unwrap();
    world
}

/// A data centre with an authority.
async fn begun() -> Store {
    let store = Store::in_memory().unwrap();
    world_on(&store, None).await.enrolment.init().await.unwrap();
    store
}

fn issued(joined: &Result<Joined, String>) -> bool {
    matches!(joined, Ok(Joined::Issued { .. }))
}

#[tokio::test] // M191
async fn of_keys_that_come_at_once_with_one_token_one_is_let_in() {
    for (is_for, cn) in [(For::Cn(ONE), Some(ONE)), (For::Volapi, None)] {
        let world = crowded(&begun().await, None).await;
        let secret = world.token(is_for).await;
        let keys: Vec<Held> = (0..12).map(|_| new_key().unwrap()).collect();
        let joined = join_all(keys.iter().map(|key| world.join(&secret, cn, key))).await;
        assert_eq!(joined.iter().filter(|it| issued(it)).count(), 1, "{is_for}: {joined:?}");
        let refused = joined.iter().filter_map(|it| it.as_ref().err());
        assert!(refused.clone().all(|code| code == "InvalidToken"), "{joined:?}");
        assert_eq!(refused.count(), 11);
        assert_eq!(world.enrolment.all().await.unwrap().len(), 1, "the others left no row");
    }
}

#[tokio::test] // M191
async fn of_keys_that_come_at_once_with_tokens_of_their_own_one_is_enrolled_and_the_others_wait() {
    let world = crowded(&begun().await, None).await;
    let mut secrets = Vec::new();
    for _ in 0..4 {
        secrets.push((world.token(For::Cn(ONE)).await, new_key().unwrap()));
    }
    let joined = join_all(secrets.iter().map(|(it, key)| world.join(it, Some(ONE), key))).await;
    assert_eq!(joined.iter().filter(|it| issued(it)).count(), 1, "{joined:?}");
    let all = world.enrolment.all().await.unwrap();
    let of = |standing| all.iter().filter(|it| it.standing == standing).count();
    assert_eq!((of(Standing::Enrolled), of(Standing::Waits)), (1, 3));
}

#[tokio::test] // M191
async fn of_approvals_at_once_one_lets_its_key_in_and_the_others_say_that_nothing_was_written() {
    let world = crowded(&begun().await, None).await;
    let secret = world.token(For::AnyCn).await;
    let keys: Vec<Held> = (0..4).map(|_| new_key().unwrap()).collect();
    for key in &keys {
        assert!(is_waiting(world.join(&secret, Some(ONE), key).await));
    }
    let keys = keys.iter().map(|key| trust::key_of(&key.request().unwrap()).unwrap());
    let approved = join_all(keys.map(|key| {
        let world = &world;
        async move { world.enrolment.approve(Identity::Agent(ONE), Some(&key)).await }
    }));
    let approved = approved.await;
    assert_eq!(approved.iter().filter(|it| it.is_ok()).count(), 1, "{approved:?}");
    let refused = approved.iter().filter_map(|it| it.as_ref().err());
    assert!(refused.clone().all(|it| it.message().contains("nothing was written")), "{approved:?}");
    let all = world.enrolment.all().await.unwrap();
    assert_eq!(all.iter().filter(|it| it.standing == Standing::Enrolled).count(), 1);
}

#[tokio::test(start_paused = true)] // M191
async fn a_service_that_is_killed_between_any_two_writes_lets_in_one_key_of_a_token() {
    for killed_at in 0.. {
        let store = begun().await;
        let secret = world_on(&store, None).await;
        secret.enrolment.refresh().await.unwrap();
        let secret = secret.token(For::Cn(ONE)).await;
        let (one, two) = (new_key().unwrap(), new_key().unwrap());
        let world = crowded(&store, Some(killed_at)).await;
        let joined =
            tokio::time::timeout(DEADLINE, world.join(&secret, Some(ONE), &one)).await.ok();
        let again = crowded(&store, None).await;
        let other = again.join(&secret, Some(ONE), &two).await;
        let same = again.join(&secret, Some(ONE), &one).await;
        assert_ne!(issued(&other), issued(&same), "{killed_at}: {other:?} {same:?}");
        let all = again.enrolment.all().await.unwrap();
        let enrolled = all.iter().filter(|it| it.standing == Standing::Enrolled).count();
        assert_eq!(enrolled, 1, "{killed_at}: {all:?}");
        if joined.is_some() {
            assert!(killed_at > 1 && issued(&same), "{killed_at}");
            return;
        }
    }
}

/// A service that is killed answers no more.
const DEADLINE: Duration = Duration::from_secs(60);
