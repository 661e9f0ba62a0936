// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who is let in, under a clock that is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use daemon::http::Shown;
use mocks::cnapi;
use mocks::transport::InProcess;
use sdc_clients::Http;
use sdc_clients::cnapi::Cnapi;
use serde_json::{Value, json};
use store::Store;
use trust::exchange::{Asks, Join, Joined, Known, State};
use trust::{About, Admits, Held, Holder, Identity, TimeProvider, Token, UnixTime, new_key};
use uuid::Uuid;

use super::members::Standing;
use super::{Enrolment, For, Place};
use crate::refused::Refused;

mod crowds; // many at once
mod lists; // what is revoked stays revoked
mod persons; // operators, and clocks that are moved

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;
const ONE: Uuid = Uuid::from_u128(1);
const TWO: Uuid = Uuid::from_u128(2);

#[derive(Debug)]
struct Clock(AtomicI64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = u64::try_from(self.0.load(Ordering::SeqCst)).unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now)))
    }
}

/// A service, and the data centre's CNAPI, which knows two nodes.
struct World {
    enrolment: Enrolment,
    clock: Arc<Clock>,
}

async fn world_on(store: &Store, place: Option<Place>) -> World {
    let mock = cnapi::Store::at(NOW * 1000);
    for cn in [ONE, TWO] {
        mock.put_server(json!({"uuid": cn, "sysinfo": {}}).as_object().cloned().unwrap());
    }
    let cnapi = Http::with_transport("http://cnapi.sim", "t", Arc::new(InProcess::new(mock)));
    let clock = Arc::new(Clock(AtomicI64::new(NOW)));
    let holder = Holder::with_clock(Admits::New, clock.clone());
    let place = match place {
        Some(place) => place,
        None => Place::row(store).await.unwrap(),
    };
    let cnapi = Cnapi::new(cnapi.unwrap().without_retries());
    let enrolment = Enrolment::open(store, place, cnapi, holder).await.unwrap();
    World { enrolment, clock }
}

/// One with an authority.
async fn world() -> World {
    let world = world_on(&Store::in_memory().unwrap(), None).await;
    world.enrolment.init().await.unwrap();
    world
}

impl World {
    async fn token(&self, is_for: For) -> String {
        let made = self.enrolment.token(is_for, DAY).await.unwrap();
        let token: Token = made["token"].as_str().unwrap().parse().unwrap();
        token.secret
    }

    async fn join(&self, secret: &str, cn: Option<Uuid>, key: &Held) -> Result<Joined, String> {
        let join = Join { secret: secret.to_owned(), cn, request: key.request().unwrap() };
        self.enrolment.join(&join).await.map_err(|refused| code(&refused))
    }

    /// Lets the agent of a node in by a token of its own; returns what it holds.
    async fn agent(&self, cn: Uuid) -> Held {
        let key = new_key().unwrap();
        let joined = self.join(&self.token(For::Cn(cn)).await, Some(cn), &key).await.unwrap();
        let Joined::Issued { certificate, known } = joined else { panic!("{joined:?}") };
        let mut held = key;
        (held.certificate, held.known) = (Some(certificate), known);
        held
    }

    async fn state(&self, held: &Held, renew: bool) -> Result<State, String> {
        let about = held.about().unwrap();
        let request = renew.then(|| held.request().unwrap());
        let asks = Asks { key: about.key.clone(), knows: held.knows(), request };
        let (identity, shown) = (about.identity, Shown::from(about));
        let answer = self.enrolment.state(identity, Some(&shown), &asks).await;
        answer.map_err(|refused| code(&refused))
    }

    /// What the program's own round does.
    async fn round(&self, held: &mut Held) -> Result<(), String> {
        let state = self.state(held, false).await?;
        held.known = state.known;
        if state.renew {
            let State { known, certificate, .. } = self.state(held, true).await?;
            (held.known, held.certificate) = (known, certificate);
        }
        Ok(())
    }

    /// Whether this agent refuses that one, because its certificate was revoked.
    async fn is_revoked_to(&self, wary: &Held, other: &Held) -> bool {
        let [wary, other] = [wary, other].map(|held| {
            let holder = Holder::with_clock(Admits::Known, self.clock.clone());
            holder.hold(held.clone()).unwrap();
            holder
        });
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (doors, from) = (trust::Doors::new(&wary), std::net::Ipv4Addr::LOCALHOST.into());
        let to = wary.live().unwrap().about.identity;
        let (_, opened) = tokio::join!(trust::connect(&other, ours, to), doors.open(theirs, from));
        opened.is_err_and(|error| error.to_string().contains("revoked"))
    }

    async fn standing(&self, key: &Held) -> Vec<Standing> {
        let key = trust::key_of(&key.request().unwrap()).unwrap();
        let all = self.enrolment.all().await.unwrap().into_iter();
        all.filter(|it| it.key == key).map(|it| it.standing).collect()
    }

    fn later(&self, by: i64) {
        self.clock.0.fetch_add(by, Ordering::SeqCst);
    }
}

fn code(refused: &Refused) -> String {
    refused.body()["code"].as_str().unwrap_or_default().to_owned()
}

fn is_waiting(joined: Result<Joined, String>) -> bool {
    matches!(joined.unwrap(), Joined::Waits { .. })
}

#[tokio::test]
async fn a_token_lets_in_one_key_of_its_own_node() {
    let world = world().await;
    let (secret, key) = (world.token(For::Cn(ONE)).await, new_key().unwrap());
    for (who, want) in [(Some(TWO), "InvalidToken"), (None, "InvalidToken")] {
        assert_eq!(world.join(&secret, who, &key).await.unwrap_err(), want, "{who:?}");
    }
    assert_eq!(world.join("another", Some(ONE), &key).await.unwrap_err(), "InvalidToken");
    let joined = world.join(&secret, Some(ONE), &key).await.unwrap();
    let Joined::Issued { certificate, known } = joined else { panic!("it waits") };
    let about = About::of(&certificate).unwrap();
    assert_eq!((about.identity, about.until), (Identity::Agent(ONE), NOW + 90 * DAY));
    assert_eq!((known.roots.len(), known.revoked.len()), (1, 1));
    // The answer was lost: the same key asks again. Another one has no use of the token.
    assert!(matches!(world.join(&secret, Some(ONE), &key).await.unwrap(), Joined::Issued { .. }));
    let other = new_key().unwrap();
    assert_eq!(world.join(&secret, Some(ONE), &other).await.unwrap_err(), "InvalidToken");
    // A day later it is of no use at all.
    let secret = world.token(For::Cn(TWO)).await;
    world.later(DAY);
    assert_eq!(world.join(&secret, Some(TWO), &other).await.unwrap_err(), "InvalidToken");
}

#[tokio::test]
async fn each_path_has_the_methods_of_its_table_and_refuses_others() {
    let enrolment = world().await.enrolment;
    let (programs, persons) = (super::agents(enrolment.clone()), super::operators(enrolment));
    for (routes, table) in [(programs, super::OF_PROGRAMS), (persons, super::OF_OPERATORS)] {
        for endpoint in table.all {
            let request = http::Request::patch(endpoint.path).body(String::new()).unwrap();
            let (head, body) = daemon::http::call(routes.clone(), request).await.into_parts();
            let allowed = head.headers["allow"].to_str().unwrap().replace("GET,HEAD", "GET");
            assert_eq!(allowed.replace(',', ", "), endpoint.methods, "{}", endpoint.path);
            let body = daemon::http::collect(body, 1 << 10, Duration::from_secs(9)).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let told = (head.status.as_u16(), &body["code"]);
            assert_eq!(told, (405, &json!("MethodNotAllowedError")), "{}", endpoint.path);
        }
    }
}

#[tokio::test]
async fn a_node_that_cnapi_does_not_know_is_not_let_in() {
    let world = world().await;
    let cn = Uuid::from_u128(3);
    let (secret, key) = (world.token(For::Cn(cn)).await, new_key().unwrap());
    assert_eq!(world.join(&secret, Some(cn), &key).await.unwrap_err(), "NoSuchNode");
    assert_eq!(world.standing(&key).await, []);
}

#[tokio::test]
async fn whatever_comes_with_a_token_of_the_data_centre_waits_for_a_person() {
    let world = world().await;
    let secret = world.token(For::AnyCn).await;
    let (one, two) = (new_key().unwrap(), new_key().unwrap());
    for (cn, key) in [(ONE, &one), (TWO, &two), (ONE, &one)] {
        assert!(is_waiting(world.join(&secret, Some(cn), key).await));
    }
    assert_eq!(world.enrolment.needs().await.unwrap().len(), 2);
    let identity = Identity::Agent(ONE);
    let refused = world.enrolment.approve(identity, None).await.unwrap_err();
    let key = trust::key_of(&one.request().unwrap()).unwrap();
    assert!(refused.message().contains(&key), "{}", refused.message());
    let of_two = trust::key_of(&two.request().unwrap()).unwrap();
    assert!(world.enrolment.approve(identity, Some(&of_two)).await.is_err());
    world.enrolment.approve(identity, Some(&key)).await.unwrap();
    assert!(matches!(world.join(&secret, Some(ONE), &one).await.unwrap(), Joined::Issued { .. }));
    assert!(is_waiting(world.join(&secret, Some(TWO), &two).await));
}

#[tokio::test]
async fn another_key_of_a_node_waits_and_takes_the_place_of_the_first_when_it_is_approved() {
    let world = world().await;
    let first = world.agent(ONE).await;
    let (secret, second) = (world.token(For::Cn(ONE)).await, new_key().unwrap());
    assert!(is_waiting(world.join(&secret, Some(ONE), &second).await));
    assert_eq!(world.state(&first, true).await.map(drop), Ok(()), "the first is in meanwhile");
    let key = trust::key_of(&second.request().unwrap()).unwrap();
    let refused = world.enrolment.approve(Identity::Agent(ONE), None).await.unwrap_err();
    for print in [&key, &first.about().unwrap().key] {
        assert!(refused.message().contains(print), "both are shown: {}", refused.message());
    }
    world.enrolment.approve(Identity::Agent(ONE), Some(&key)).await.unwrap();
    assert_eq!(world.state(&first, false).await.unwrap_err(), "Revoked");
    assert!(matches!(
        world.join(&secret, Some(ONE), &second).await.unwrap(),
        Joined::Issued { .. }
    ));
    assert_eq!(world.join(&secret, Some(ONE), &first).await.unwrap_err(), "Revoked");
}

#[tokio::test]
async fn volapi_is_let_in_by_a_token_of_its_own_and_is_no_agent() {
    let world = world().await;
    let (secret, key) = (world.token(For::Volapi).await, new_key().unwrap());
    assert_eq!(world.join(&secret, Some(ONE), &key).await.unwrap_err(), "InvalidToken");
    let joined = world.join(&secret, None, &key).await.unwrap();
    let Joined::Issued { certificate, .. } = joined else { panic!("it waits") };
    assert_eq!(About::of(&certificate).unwrap().identity, Identity::Volapi);
}

#[tokio::test]
async fn what_is_revoked_is_on_the_list_that_all_get() {
    let world = world().await;
    let (one, mut two) = (world.agent(ONE).await, world.agent(TWO).await);
    let before = two.known.clone();
    world.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();
    assert_eq!(world.state(&one, true).await.unwrap_err(), "Revoked");
    world.round(&mut two).await.unwrap();
    assert_ne!(two.known.revoked, before.revoked);
    // The other agent refuses it from now on.
    assert!(world.is_revoked_to(&two, &one).await);
    // The same words a second time say that there is nothing to revoke.
    assert_eq!(world.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap_err().status(), 404);
}

#[tokio::test]
async fn a_rotation_needs_no_restart_and_ends_when_all_have_renewed() {
    let world = world().await;
    let (mut one, mut two) = (world.agent(ONE).await, world.agent(TWO).await);
    let issuer = |held: &Held| held.about().unwrap().issuer;
    let old = issuer(&one);
    let own = |world: &World| world.enrolment.holder.live().unwrap().about.issuer.clone();
    // What they know is read in their first round.
    for held in [&mut one, &mut two] {
        world.round(held).await.unwrap();
    }
    world.enrolment.rotate(false).await.unwrap();
    // Only the service knows the new one yet: the old one signs.
    assert_eq!((one.known.roots.len(), own(&world)), (1, old.clone()));
    world.round(&mut one).await.unwrap();
    assert_eq!(one.known.roots.len(), 2);
    // Its next round says that it knows both; the other one does not yet.
    world.round(&mut one).await.unwrap();
    world.enrolment.refresh().await.unwrap();
    assert_eq!(own(&world), old);
    let refused = world.enrolment.rotate(false).await.unwrap_err();
    assert!(refused.message().contains(&TWO.to_string()), "{}", refused.message());
    for _ in 0..3 {
        for held in [&mut one, &mut two] {
            world.round(held).await.unwrap();
        }
        world.enrolment.refresh().await.unwrap();
    }
    let new = issuer(&one);
    assert_ne!(new, old);
    assert_eq!((issuer(&two), own(&world)), (new.clone(), new.clone()));
    world.enrolment.rotate(false).await.unwrap();
    world.round(&mut one).await.unwrap();
    assert_eq!(one.knows(), [new]);
}

#[tokio::test]
async fn a_rotation_can_be_ended_without_those_who_are_away() {
    let world = world().await;
    let mut one = world.agent(ONE).await;
    world.round(&mut one).await.unwrap();
    world.enrolment.rotate(false).await.unwrap();
    assert_eq!(world.enrolment.rotate(false).await.unwrap_err().status(), 409);
    world.enrolment.rotate(true).await.unwrap();
    let live = world.enrolment.holder.live().unwrap();
    assert_ne!(live.about.issuer, one.about().unwrap().issuer);
    assert_eq!(live.held.known.roots.len(), 1);
}

#[tokio::test]
async fn a_store_that_was_lost_asks_a_person_for_each_program_and_the_authority_stays() {
    let dir = tempfile::tempdir().unwrap();
    let place = || Some(Place::File(dir.path().join("trust/authority.json")));
    let world = world_on(&Store::in_memory().unwrap(), place()).await;
    world.enrolment.init().await.unwrap();
    let one = world.agent(ONE).await;
    let again = world_on(&Store::in_memory().unwrap(), place()).await;
    again.enrolment.refresh().await.unwrap();
    let live = again.enrolment.holder.live().unwrap();
    assert_eq!(live.about.issuer, one.about().unwrap().issuer, "the same authority");
    for _ in 0..2 {
        assert_eq!(again.state(&one, true).await.unwrap_err(), "NoSuchKey");
    }
    assert_eq!(again.standing(&one).await, [Standing::Waits]);
    let key = one.about().unwrap().key;
    again.enrolment.approve(Identity::Agent(ONE), Some(&key)).await.unwrap();
    assert!(again.state(&one, true).await.unwrap().certificate.is_some());
}

#[tokio::test]
async fn what_is_not_renewed_is_told_14_days_before() {
    let world = world().await;
    let one = world.agent(ONE).await;
    assert_eq!(world.enrolment.needs().await.unwrap(), Vec::<String>::new());
    world.later(77 * DAY);
    let needs = world.enrolment.needs().await.unwrap();
    assert!(needs[0].contains(&ONE.to_string()) && needs[0].contains("ends on"), "{needs:?}");
    let renewed = world.state(&one, true).await.unwrap().certificate.unwrap();
    assert_eq!(About::of(&renewed).unwrap().until, NOW + (77 + 90) * DAY);
    assert_eq!(world.enrolment.needs().await.unwrap(), Vec::<String>::new());
    // The service renews its own in the same way.
    world.enrolment.refresh().await.unwrap();
    let live = world.enrolment.holder.live().unwrap();
    assert_eq!(live.about.until, NOW + (77 + 90) * DAY);
}

#[tokio::test]
async fn before_there_is_an_authority_no_program_is_let_in_and_it_is_made_once() {
    let world = world_on(&Store::in_memory().unwrap(), None).await;
    assert_eq!(world.enrolment.token(For::AnyCn, DAY).await.unwrap_err().status(), 503);
    assert!(world.enrolment.needs().await.unwrap()[0].contains("trust init"));
    let made = world.enrolment.init().await.unwrap();
    assert_eq!(world.enrolment.init().await.unwrap_err().status(), 409);
    assert_eq!(made["authorities"].as_array().map(Vec::len), Some(1));
    let shown: Value = world.enrolment.list().await.unwrap();
    assert!(!shown.to_string().contains("PRIVATE"));
    assert_eq!(world.enrolment.signing().unwrap().2, {
        let live = world.enrolment.holder.live().unwrap();
        Known::clone(&live.held.known)
    });
}
