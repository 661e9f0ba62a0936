// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is revoked stays revoked, whatever the clock did, and whatever the store has lost.

use tempfile::TempDir;

use super::*;

/// Two agents that a service let in, and the service with the same authority after it has lost its store.
async fn with_a_lost_store() -> (TempDir, Held, Held, World) {
    let dir = tempfile::tempdir().unwrap();
    let place = || Some(Place::File(dir.path().join("trust/authority.json")));
    let world = world_on(&Store::in_memory().unwrap(), place()).await;
    world.enrolment.init().await.unwrap();
    let (one, two) = (world.agent(ONE).await, world.agent(TWO).await);
    let again = world_on(&Store::in_memory().unwrap(), place()).await;
    again.enrolment.refresh().await.unwrap();
    (dir, one, two, again)
}

#[tokio::test] // M154
async fn a_clock_that_ran_ahead_forgets_no_revocation() {
    let world = world().await;
    let (one, mut two) = (world.agent(ONE).await, world.agent(TWO).await);
    world.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();
    world.later(91 * DAY);
    world.enrolment.refresh().await.unwrap();
    // Meanwhile the other one renews, and what it knows is of that time.
    world.round(&mut two).await.unwrap();
    world.later(-91 * DAY);
    assert!(world.is_revoked_to(&two, &one).await, "before the service has refreshed");
    world.enrolment.refresh().await.unwrap();
    world.round(&mut two).await.unwrap();
    assert!(world.is_revoked_to(&two, &one).await);
}

#[tokio::test] // M154
async fn a_certificate_of_before_the_clock_ran_ahead_is_revoked_with_the_others() {
    let world = world().await;
    let (one, mut two) = (world.agent(ONE).await, world.agent(TWO).await);
    world.later(91 * DAY);
    assert!(world.state(&one, true).await.unwrap().certificate.is_some());
    world.later(-91 * DAY);
    world.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();
    world.round(&mut two).await.unwrap();
    assert!(world.is_revoked_to(&two, &one).await);
}

#[tokio::test] // M154
async fn what_a_lost_store_did_not_know_is_revoked_with_what_it_has_shown() {
    let (_dir, one, mut two, again) = with_a_lost_store().await;
    for (cn, held) in [(ONE, &one), (TWO, &two)] {
        assert_eq!(again.state(held, false).await.unwrap_err(), "NoSuchKey");
        let key = held.about().unwrap().key;
        again.enrolment.approve(Identity::Agent(cn), Some(&key)).await.unwrap();
        again.state(held, false).await.unwrap();
    }
    again.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();
    again.round(&mut two).await.unwrap();
    assert!(again.is_revoked_to(&two, &one).await);
}

#[tokio::test] // M154
async fn a_key_that_was_revoked_takes_each_certificate_along_that_it_shows_later() {
    let (_dir, one, mut two, again) = with_a_lost_store().await;
    // A person refuses what waits, and does not know with which certificate it came.
    assert_eq!(again.state(&two, false).await.unwrap_err(), "NoSuchKey");
    let key = two.about().unwrap().key;
    again.enrolment.approve(Identity::Agent(TWO), Some(&key)).await.unwrap();
    let about = one.about().unwrap();
    let asks = Asks { key: about.key.clone(), knows: one.knows(), request: None };
    assert!(again.enrolment.state(about.identity, None, &asks).await.is_err());
    again.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();
    again.round(&mut two).await.unwrap();
    assert!(!again.is_revoked_to(&two, &one).await, "no program has seen its certificate yet");
    assert_eq!(again.state(&one, false).await.unwrap_err(), "Revoked");
    again.enrolment.refresh().await.unwrap();
    again.round(&mut two).await.unwrap();
    assert!(again.is_revoked_to(&two, &one).await);
    assert_eq!(again.enrolment.revoked().await.unwrap().len(), 1);
}

#[tokio::test] // M154
async fn an_authority_of_yesterday_honours_no_key_that_was_revoked_since() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trust/authority.json");
    let (store, place) = (Store::in_memory().unwrap(), || Some(Place::File(file.clone())));
    let world = world_on(&store, place()).await;
    world.enrolment.init().await.unwrap();
    let (one, mut two) = (world.agent(ONE).await, world.agent(TWO).await);
    let (mut renewed, before) = (one.clone(), two.clone());
    let yesterday = std::fs::read(&file).unwrap();
    // A rotation from its begin to its end, and then a key is revoked.
    for _ in 0..2 {
        for _ in 0..4 {
            for held in [&mut renewed, &mut two] {
                world.round(held).await.unwrap();
            }
            world.enrolment.refresh().await.unwrap();
        }
        world.enrolment.rotate(false).await.unwrap();
    }
    assert_ne!(renewed.about().unwrap().issuer, one.about().unwrap().issuer);
    world.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();

    std::fs::write(&file, yesterday).unwrap();
    let again = world_on(&store, place()).await;
    again.enrolment.refresh().await.unwrap();
    // The old authority judges: what it has signed for that key is on its list too.
    let mut wary = before;
    again.round(&mut wary).await.unwrap();
    assert_eq!(wary.about().unwrap().issuer, one.about().unwrap().issuer);
    for shown in [&one, &renewed] {
        assert_eq!(again.state(shown, false).await.unwrap_err(), "Revoked");
    }
    assert!(again.is_revoked_to(&wary, &one).await);
    // Who is in, with a certificate of the authority that is gone, is let in again with the same key by a token.
    let joined = again.join(&again.token(For::Cn(TWO)).await, Some(TWO), &two).await.unwrap();
    assert!(matches!(joined, Joined::Issued { .. }), "{joined:?}");
}
