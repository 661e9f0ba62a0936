// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has ended, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use pretty_assertions::assert_eq;
use sdc_clients::migrations::Ended;
use serde_json::{Value, json};
use uuid::Uuid;

use super::node::{Fails, ONE, OWNER, TWO, VM};
use super::story::beside;
use super::world::World;
use crate::through::Through;
use migration_core::protocol;
use migration_core::record::State;
use migration_core::time::Time;

/// Asks for the history.
pub async fn history(world: &Arc<World>, query: &str) -> Vec<Ended> {
    let path = format!("/migrations?format=history{query}");
    let (status, body) = world.ask("GET", &path, json!({})).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_value(body).unwrap()
}

/// Migrates by one command.
async fn migrate(world: &Arc<World>) {
    let (status, body) = world.act("begin&migration_automatic=true").await;
    assert_eq!(status, 202, "{body}");
    assert_eq!(world.settled().await.unwrap().state, State::Successful);
}

#[tokio::test(start_paused = true)] // M147
async fn a_vm_that_was_migrated_rolled_back_migrated_and_finalized_shows_four_entries() {
    for is_running in [true, false] {
        let world = World::new(is_running);
        let found = beside(&world, async {
            migrate(&world).await;
            assert_eq!(world.act("rollback").await.0, 202);
            assert_eq!(world.settled().await, None);
            migrate(&world).await;
            assert_eq!(world.act("finalize").await.0, 200);
            assert_eq!(world.settled().await, None);
            history(&world, "").await
        });
        let found = found.await;
        let (one, two) = (Some(ONE.to_string()), Some(TWO.to_string()));
        let listed: Vec<_> =
            found.iter().rev().map(|it| (it.what.as_str(), &it.from, &it.to)).collect();
        let want = [
            ("migrate", &one, &two),
            ("rollback", &two, &one),
            ("migrate", &one, &two),
            ("finalize", &one, &two),
        ];
        assert_eq!(listed, want);
        for entry in &found {
            let is_known = (entry.outcome.as_str(), &entry.vm_uuid, &entry.owner_uuid);
            assert_eq!(is_known, ("successful", &Some(VM.to_string()), &Some(OWNER.to_string())));
            let asked = (entry.by.as_deref(), entry.program.as_deref());
            assert_eq!(asked, (Some("ops"), Some("sdc-migrate/1.0.0")), "{}", entry.what);
            assert_eq!(entry.error, None);
            assert!(entry.began.as_ref().unwrap() < &entry.ended, "{entry:?}");
            // A finalize stops nothing, and what did not run was not down: that is unknown, and no 0.
            let is_down = is_running && entry.what != "finalize";
            assert_eq!(entry.downtime_ms.is_some_and(|ms| ms > 0), is_down, "{entry:?}");
            assert_eq!(entry.downtime_ms.is_some(), is_down, "{entry:?}");
        }
        let phases = |at: usize| -> Vec<&str> {
            found[at].steps.iter().map(|it| it.phase.as_str()).collect()
        };
        assert_eq!((phases(2), phases(0).last().copied()), (vec!["rollback"], Some("switch")));
        assert_eq!(phases(3)[..2], ["begin", "sync"]);
        assert!(found[3].steps.iter().all(|it| it.began.is_some() && it.ended.is_some()));
        assert!(found[3].bytes.unwrap() > 0 && found[1].bytes.unwrap() > 0);
        assert_eq!(found[0].bytes, None, "a finalize sends nothing");
    }
}

#[tokio::test(start_paused = true)] // M147
async fn the_downtime_is_from_the_order_to_stop_until_the_vm_is_seen_running() {
    let world = World::new(true);
    let (mut stopped, mut runs) = (None, None);
    beside(&world, async {
        world.synced().await;
        assert_eq!(world.act("switch").await.0, 202);
        let on = |cn: Uuid| world.centre().hosts[&cn].copy.as_ref().is_some_and(|it| it.running);
        let now = || world.centre().clock.now();
        while runs.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            stopped = stopped.or((!on(ONE)).then(now));
            runs = on(TWO).then(now);
        }
        world.settled().await.unwrap();
    })
    .await;
    let seen = runs.unwrap().since(stopped.unwrap());
    let found = history(&world, "").await;
    let recorded = i64::try_from(found[0].downtime_ms.unwrap()).unwrap();
    // The orders to stop and to boot are waited for: 1 s each at most, and an observation each.
    assert!((seen..=seen + 2_500).contains(&recorded), "seen {seen} ms, recorded {recorded} ms");
}

#[tokio::test(start_paused = true)] // M147
async fn what_fails_is_aborted_or_removed_is_told_with_the_reason_and_who_asked() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        let error = "cannot send receive stream: dataset is busy".to_owned();
        let state = protocol::State::Failed { error, fatal: true };
        let fails = Fails { name: "send", state, times: 1, moved: |_| (0, 0) };
        world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
        assert_eq!(world.act("switch").await.0, 202);
        world.settled().await.unwrap();
        let (_, body) = world.ask("GET", &format!("/migrations/{VM}?format=raw"), json!({})).await;
        let failed = &history(&world, "").await[0];
        assert_eq!((failed.what.as_str(), failed.outcome.as_str()), ("switch", "failed"));
        assert_eq!(body["why"].as_str(), failed.error.as_deref(), "{body}");
        assert_eq!(world.act("abort").await.0, 202);
        world.settled().await.unwrap();
        let (_, body) = world.ask("GET", "/migrations?state=aborted&format=raw", json!({})).await;
        assert_eq!(body[0]["why"], json!("it was aborted"), "{body}");
        // One without a target is aborted at once.
        world.limit(0).await;
        assert_eq!(world.act("begin").await.0, 202);
        let (_, body) = world.ask("GET", &format!("/migrations/{VM}"), json!({})).await;
        assert!(body["why"].as_str().unwrap().contains("as many as it may have"), "{body}");
        assert_eq!(world.act("abort").await.0, 200);
        assert_eq!(world.act("begin").await.0, 202);
        let path = format!("/migrations/{VM}");
        assert_eq!(world.ask("DELETE", &path, json!({})).await.0, 200);
    })
    .await;
    let found = history(&world, &format!("&vm_uuid={VM}")).await;
    let listed: Vec<&str> = found.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(listed, ["remove", "abort", "abort", "switch"]);
    assert!(found.iter().all(|it| it.by.as_deref() == Some("ops")), "{found:?}");
}

#[tokio::test(start_paused = true)] // M147
async fn a_roll_back_that_fails_is_told_with_the_reason_as_each_further_try_is() {
    let world = World::new(true);
    beside(&world, async {
        migrate(&world).await;
        let error = "cannot send receive stream: dataset is busy".to_owned();
        let state = protocol::State::Failed { error, fatal: true };
        let fails = Fails { name: "send", state, times: 2, moved: |_| (0, 0) };
        world.centre().hosts.get_mut(&TWO).unwrap().fails = Some(fails);
        for _ in 0..2 {
            assert_eq!(world.act("rollback").await.0, 202);
            assert_eq!(world.settled().await.unwrap().state, State::Failed);
        }
        assert_eq!(world.act("rollback").await.0, 202);
        assert_eq!(world.settled().await, None);
    })
    .await;
    let found = history(&world, "").await;
    let listed: Vec<_> =
        found.iter().rev().map(|it| (it.what.as_str(), it.outcome.as_str())).collect();
    let (failed, done) = (("rollback", "failed"), ("rollback", "successful"));
    assert_eq!(listed, [("migrate", "successful"), failed, failed, done]);
    for entry in &found[1..3] {
        assert!(entry.error.as_ref().is_some_and(|it| it.contains("is busy")), "{entry:?}");
        assert_eq!(entry.steps.last().map(|it| it.state.as_str()), Some("failed"), "{entry:?}");
    }
}

#[tokio::test(start_paused = true)] // M147
async fn a_setting_that_changes_is_told_with_what_it_was() {
    let world = World::new(true);
    let put = async |path: &str, body: Value| {
        assert_eq!(world.ask("PUT", path, body).await.0, 200);
        tokio::time::advance(Duration::from_secs(1)).await;
    };
    put("/settings", json!({"max_attempts": 5})).await;
    put("/settings", json!({"max_attempts": 5})).await; // nothing changes
    put(&format!("/settings/{ONE}"), json!({"zfs_send_mbps_limit": 7})).await;
    let found = history(&world, "").await;
    assert_eq!(found.len(), 2);
    let changed = |at: usize| (&found[at].other["values"], &found[at].other["before"]);
    assert_eq!(changed(1), (&json!({"max_attempts": 5}), &json!({"max_attempts": null})));
    assert_eq!(found[0].cn_uuids, [ONE.to_string()]);
    assert_eq!(history(&world, &format!("&cn_uuid={ONE}")).await, found[..1]);
    assert_eq!(history(&world, &format!("&since={}", found[0].ended)).await, found[..1]);
    assert_eq!(history(&world, &format!("&owner_uuid={OWNER}")).await, []);
    assert_eq!(history(&world, "&limit=1").await, found[..1]);
    let (status, _) = world.ask("GET", "/migrations?format=history&since=x", json!({})).await;
    assert_eq!(status, 409);
}

#[tokio::test(start_paused = true)] // M148
async fn the_history_is_kept_so_long_and_no_vm_has_more_than_so_many() {
    let world = World::new(true);
    let service = world.plain().await;
    let history = &service.records.history;
    let at = |day: i64| Time::from_millis(day * 86_400_000);
    let entry = |day: i64| {
        let details = json!({"day": day}).as_object().unwrap().clone();
        crate::history::about("set", Some(ONE), &Through::default(), details, at(day))
    };
    for day in 0..600 {
        history.put(&entry(day)).await.unwrap();
    }
    let days = async || -> Vec<i64> {
        let found = history.list(&Default::default(), 1000).await.unwrap();
        found.iter().map(|it| it.other["day"].as_i64().unwrap()).collect()
    };
    assert_eq!(days().await, (100..600).rev().collect::<Vec<i64>>());
    let fence = world.store.claim("lease", "one", Duration::from_secs(60)).await.unwrap().unwrap();
    service.records.prune(Duration::from_secs(400 * 86_400), at(600), &fence).await.unwrap();
    assert_eq!(days().await, (200..600).rev().collect::<Vec<i64>>());
    // The whole of it is shorter than it is kept.
    service.records.prune(Duration::from_secs(4000 * 86_400), at(600), &fence).await.unwrap();
    assert_eq!(days().await.len(), 400);
}
