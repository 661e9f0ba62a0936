// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Operators with keys of their own, the end of the tokens for any node, and clocks that are moved.

use super::*;

/// Asks to be let in as an operator, and is approved.
async fn operator(world: &World) -> Held {
    let (secret, key) = (world.token(For::Operator).await, new_key().unwrap());
    assert!(is_waiting(world.join(&secret, None, &key).await));
    let print = trust::key_of(&key.request().unwrap()).unwrap();
    world.enrolment.approve(Identity::Operator, Some(&print)).await.unwrap();
    let joined = world.join(&secret, None, &key).await.unwrap();
    let Joined::Issued { certificate, known } = joined else { panic!("{joined:?}") };
    let mut held = key;
    (held.certificate, held.known) = (Some(certificate), known);
    held
}

#[tokio::test]
async fn an_operator_is_let_in_by_another_and_there_may_be_many() {
    let world = world().await;
    let secret = world.token(For::Operator).await;
    let key = new_key().unwrap();
    assert_eq!(world.join(&secret, Some(ONE), &key).await.unwrap_err(), "InvalidToken");
    let (one, two) = (operator(&world).await, operator(&world).await);
    for held in [&one, &two] {
        assert_eq!(held.about().unwrap().identity, Identity::Operator);
        assert_eq!(world.standing(held).await, [Standing::Enrolled]);
    }
    // One of them goes, by the fingerprint of his key.
    let key = one.about().unwrap().key;
    world.enrolment.revoke(Identity::Operator, Some(&key)).await.unwrap();
    assert_eq!(world.standing(&one).await, [Standing::Revoked]);
    assert_eq!(world.standing(&two).await, [Standing::Enrolled]);
    assert_eq!(world.state(&one, true).await.unwrap_err(), "Revoked");
    assert!(world.state(&two, false).await.is_ok());
    // No warning names a certificate that is renewed when its holder asks something.
    world.later(80 * DAY);
    assert_eq!(world.enrolment.needs().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_rotation_does_not_wait_for_a_person() {
    let world = world().await;
    let _away = operator(&world).await;
    let mut one = world.agent(ONE).await;
    world.round(&mut one).await.unwrap();
    world.enrolment.rotate(false).await.unwrap();
    for _ in 0..3 {
        world.round(&mut one).await.unwrap();
        world.enrolment.refresh().await.unwrap();
    }
    world.enrolment.rotate(false).await.unwrap();
    assert_eq!(world.enrolment.holder.live().unwrap().held.known.roots.len(), 1);
}

#[tokio::test]
async fn when_trust_is_required_only_a_token_of_one_node_lets_in() {
    let world = world().await;
    let early = world.token(For::AnyCn).await;
    world.enrolment.require().await.unwrap();
    let key = new_key().unwrap();
    assert_eq!(world.join(&early, Some(ONE), &key).await.unwrap_err(), "InvalidToken");
    let refused = world.enrolment.token(For::AnyCn, DAY).await.unwrap_err();
    assert_eq!((refused.status(), code(&refused)), (409, "Required".to_owned()));
    assert!(world.enrolment.list().await.unwrap()["required"].is_string());
    world.agent(TWO).await;
    world.enrolment.require_no_more().await.unwrap();
    assert!(world.enrolment.token(For::AnyCn, DAY).await.is_ok());
}

#[tokio::test]
async fn a_revoked_node_is_one_until_another_key_is_let_in() {
    let world = world().await;
    let revoked = async || world.enrolment.is_revoked(ONE);
    assert!(!revoked().await, "it never was in");
    world.agent(ONE).await;
    assert!(!revoked().await);
    world.enrolment.revoke(Identity::Agent(ONE), None).await.unwrap();
    assert!(revoked().await);
    world.agent(ONE).await;
    assert!(!revoked().await);
}

#[tokio::test]
async fn a_certificate_of_a_clock_that_was_ahead_is_made_anew() {
    let world = world().await;
    let one = world.agent(ONE).await;
    // The service's clock is 91 days ahead for a while: it renews its own, and the agent's where that asks.
    world.later(91 * DAY);
    world.enrolment.refresh().await.unwrap();
    let own = || world.enrolment.holder.live().unwrap().about.clone();
    let ahead = world.state(&one, true).await.unwrap().certificate.unwrap();
    assert!(own().from > NOW && About::of(&ahead).unwrap().from > NOW);
    world.later(-91 * DAY);
    world.enrolment.refresh().await.unwrap();
    assert!(own().from <= NOW && NOW < own().until, "{:?}", own());
    let again = world.state(&one, true).await.unwrap().certificate.unwrap();
    let again = About::of(&again).unwrap();
    assert!(again.from <= NOW && NOW < again.until, "{again:?}");
}
