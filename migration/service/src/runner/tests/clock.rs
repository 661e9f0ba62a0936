// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Over HTTP: what happens by the clock, by the limits, and what is taken over from a running VMAPI.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use daemon::http::call;
use pretty_assertions::assert_eq;
use sdc_clients::http::Http;
use serde_json::{Value, json};
use store::Store;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::fleet::{Fleet, vm};
use super::node::{ONE, OWNER, TWO, VM};
use super::routed::Routed;
use super::story::{AUTOMATIC, beside};
use super::words::page;
use super::world::World;
use crate::front::{Upstream, router};
use crate::import::{Mode, Taken, import};
use crate::runner::{TERM, lead};
use crate::state::Service;
use migration_core::record::{Record, State};
use migration_core::samples::record;

const MINUTE: Duration = Duration::from_secs(60);

/// Waits until the newest record is in this state, and returns it.
async fn becomes(world: &Arc<World>, state: State) -> Record {
    for _ in 0..200_000 {
        let record = world.record().await.unwrap();
        if record.state == state {
            return record;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("it does not become {state:?}: {:?}", world.record().await);
}

#[tokio::test(start_paused = true)] // M59
async fn what_was_switched_is_finalized_and_what_is_paused_is_aborted_when_its_time_is_over() {
    let world = World::new(true);
    let settings = json!({"auto_finalize_after": 300, "max_paused": 600});
    assert_eq!(world.ask("PUT", "/settings", settings).await.0, 200);
    beside(&world, async {
        assert_eq!(world.act("begin").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Paused);
        let began = Instant::now();
        becomes(&world, State::Aborted).await;
        let seconds = began.elapsed().as_secs();
        assert!((598..615).contains(&seconds), "{seconds}");
        assert!(world.centre().hosts[&TWO].copy.is_none());
        world.command(AUTOMATIC).await.unwrap();
        let switched = becomes(&world, State::Successful).await;
        let began = Instant::now();
        while world.plain().await.records.get(switched.id).await.unwrap().is_some() {
            sleep(Duration::from_secs(1)).await;
        }
        let seconds = began.elapsed().as_secs();
        assert!((298..315).contains(&seconds), "{seconds}");
        assert!(world.centre().hosts[&ONE].copy.is_none());
    })
    .await;
    assert_eq!(world.centre().broken, None);
}

#[tokio::test(start_paused = true)] // R21
async fn a_time_is_set_changed_and_forgotten_and_one_that_has_passed_starts_nothing() {
    let world = World::new(true);
    let at = |text: &str| format!("schedule&scheduled_timestamp={text}");
    let leeway = json!({"schedule_leeway": 600});
    assert_eq!(world.ask("PUT", "/settings", leeway).await.0, 200);
    let shown = |body: &Value| body["migration"]["scheduled_timestamp"].clone();
    beside(&world, async {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.act(&at("tomorrow")).await.0, 409);
        assert_eq!(world.act(&at("6 minutes")).await.0, 202);
        let first = becomes(&world, State::Scheduled).await.scheduled_timestamp;
        let (status, body) = world.act(&at("20 minutes")).await;
        assert_eq!(status, 200, "{body}");
        assert_ne!(shown(&body), json!(first));
        sleep(10 * MINUTE).await;
        assert_eq!(world.record().await.unwrap().state, State::Scheduled, "not at the first time");
        assert_eq!(world.act("unschedule").await.0, 200);
        assert_eq!(world.act("unschedule").await.0, 412);
        sleep(20 * MINUTE).await;
        assert_eq!(world.record().await.unwrap().state, State::Paused, "no timer switches it");
        assert_eq!(world.act(&at("2 minutes")).await.0, 200);
    })
    .await;
    // No service runs the timers until the leeway is over.
    sleep(13 * MINUTE).await;
    beside(&world, async {
        sleep(2 * MINUTE).await;
        let record = world.record().await.unwrap();
        assert_eq!(record.state, State::Scheduled);
        assert!(record.error.as_deref().unwrap().contains("has passed"), "{record:?}");
        assert!(world.centre().hosts[&ONE].copy.as_ref().unwrap().running);
        assert_eq!(world.act("switch").await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!(record.state, State::Successful, "by hand it does: {:?}", record.error);
    })
    .await;
}

async fn ask(
    service: &Service,
    fleet: &Arc<Fleet>,
    method: &str,
    path: &str,
    body: Value,
) -> Value {
    let upstream = Upstream::new("http://vmapi.sim", fleet.clone()).unwrap();
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let answer = call(
        router(service.clone(), upstream),
        request.body(Body::from(body.to_string())).unwrap(),
    )
    .await;
    let bytes = daemon::http::collect(answer.into_body(), 1 << 20, MINUTE).await.unwrap();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[tokio::test(start_paused = true)] // R13
async fn who_waits_for_a_node_knows_which_and_the_place_and_the_oldest_is_next() {
    let fleet = Fleet::new(3);
    let store = Store::in_memory().unwrap();
    let service = fleet.service(&store).await;
    let all = ("PUT", "/settings".to_owned(), json!({"max_running_migrations_per_cn": 0}));
    ask(&service, &fleet, all.0, &all.1, all.2).await;
    let story = async {
        for n in 1..=3 {
            let path = format!("/vms/{}?action=migrate&migration_action=begin", vm(n));
            let answer = ask(&service, &fleet, "POST", &path, json!({})).await;
            assert_eq!(answer["migration"]["state"], "queued", "{answer}");
            let waits = answer["migration"]["waits_for"].as_str().unwrap();
            assert!(waits.contains(&ONE.to_string()), "{waits}");
            assert!(waits.ends_with(&format!("place {n}")), "{waits}");
            sleep(Duration::from_secs(1)).await;
        }
        // One node's own limit lets the oldest go, one after the other.
        let own = json!({"max_running_migrations_per_cn": 1});
        ask(&service, &fleet, "PUT", &format!("/settings/{ONE}"), own.clone()).await;
        ask(&service, &fleet, "PUT", &format!("/settings/{TWO}"), own).await;
        let mut done = Vec::new();
        while done.len() < 3 {
            sleep(Duration::from_millis(100)).await;
            let listed = ask(&service, &fleet, "GET", "/migrations", json!({})).await;
            let listed = listed.as_array().unwrap().clone();
            let running = listed.iter().filter(|one| one["state"] == "running").count();
            assert!(running <= 1, "{listed:?}");
            for one in listed.iter().filter(|one| one["state"] == "paused") {
                let vm: Uuid = one["vm_uuid"].as_str().unwrap().parse().unwrap();
                if !done.contains(&vm) {
                    done.push(vm);
                }
            }
        }
        assert_eq!(done, [vm(1), vm(2), vm(3)]);
    };
    tokio::select! {
        () = lead(service.clone(), store.clone(), TERM) => unreachable!(),
        () = story => {}
    }
}

#[tokio::test(start_paused = true)] // M143
async fn a_step_that_is_tried_again_is_told_until_it_goes_on() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.power(ONE, false);
        assert_eq!(world.act("sync").await.0, 202);
        let again = loop {
            sleep(Duration::from_secs(1)).await;
            let again = world.record().await.unwrap().intent.again.clone();
            if let Some(again) = again.filter(|again| again.failed > 1) {
                break again;
            }
        };
        assert_eq!(
            (again.why.as_str(), again.most),
            ("migration-agent on the source's node does not answer", 10)
        );
        assert!(again.since < again.next, "{again:?}");
        let (_, shown) = world.ask("GET", &format!("/migrations/{VM}"), json!({})).await;
        let reason =
            "migration-agent on the source's node does not answer (attempt 2 of 10 failed; since ";
        assert!(shown["waits_for"].as_str().unwrap().starts_with(reason), "{shown}");
        assert!(page(&world, "/status").await.contains(reason));
        assert!(page(&world, "/metrics").await.contains("migration_service_migrations_again 0"));
        world.power(ONE, true);
        let record = world.settled().await.unwrap();
        assert_eq!((record.state, record.intent.again.clone()), (State::Paused, None));
        let (_, shown) = world.ask("GET", &format!("/migrations/{VM}"), json!({})).await;
        assert_eq!(shown["waits_for"], "you: sync, switch or abort");
    })
    .await;
}

#[tokio::test(start_paused = true)] // M56
async fn a_step_that_waits_is_tried_at_once_when_its_command_is_given_again() {
    let world = World::new(true);
    beside(&world, async {
        for action in ["sync", "switch", "rollback"] {
            if action == "sync" {
                world.synced().await;
            }
            world.power(TWO, false);
            assert_eq!(world.act(action).await.0, 202);
            let again = loop {
                sleep(Duration::from_millis(300)).await;
                let again = world.record().await.unwrap().intent.again.clone();
                let due = world.plain().await.clock.now().plus(20_000);
                if let Some(again) = again.filter(|again| again.next > due) {
                    break again;
                }
            };
            // The other commands are refused as before.
            assert_eq!(world.act("begin").await.0, 412, "{action}");
            let typed = Instant::now();
            assert_eq!(world.act(action).await.0, 202, "{action}");
            let tried = loop {
                sleep(Duration::from_millis(300)).await;
                let now = world.record().await.unwrap().intent.again.clone();
                if let Some(now) = now.filter(|now| now.since > again.since) {
                    break now;
                }
            };
            assert!(typed.elapsed() < Duration::from_secs(10), "{action}: {:?}", typed.elapsed());
            // Whoever asks again has all attempts again.
            assert_eq!(tried.failed, 1, "{action}");
            world.power(TWO, true);
            assert_eq!(world.act(action).await.0, 202, "{action}");
            let typed = Instant::now();
            let state = world.settled().await.map(|record| record.state);
            let ends = [Some(State::Paused), Some(State::Successful), None];
            assert!(ends.contains(&state), "{action}: {state:?}");
            assert!(typed.elapsed() < Duration::from_secs(20), "{action}: {:?}", typed.elapsed());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)] // M143
async fn an_agent_that_answers_with_an_error_is_not_called_silent() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.centre().hosts.get_mut(&ONE).unwrap().is_unwell = true;
        assert_eq!(world.act("sync").await.0, 202);
        let why = loop {
            sleep(Duration::from_secs(1)).await;
            if let Some(again) = world.record().await.unwrap().intent.again.clone() {
                break again.why;
            }
        };
        assert!(why.starts_with("migration-agent on the source's node fails: "), "{why}");
        assert!(why.ends_with("vminfod: no answer in time (POST /observe, 503)"), "{why}");
        world.centre().hosts.get_mut(&ONE).unwrap().is_unwell = false;
        assert_eq!(world.settled().await.unwrap().state, State::Paused);
    })
    .await;
}

#[tokio::test(start_paused = true)] // M60
async fn the_records_of_a_running_vmapi_are_taken_over_once_and_differences_are_told() {
    let world = World::new(true);
    let old = world.plain().await.clone();
    let upstream = Upstream::new("http://vmapi.sim", world.clone()).unwrap();
    let routes: Router = router(old.clone(), upstream);
    let from =
        Http::with_transport("http://old.sim", "import", Arc::new(Routed(routes, None))).unwrap();
    let mut paused = record(json!({"vm_uuid": VM, "phase": "sync", "num_sync_phases": 2}));
    old.records.overwrite(&paused).await.unwrap();
    let empty = World::new(true);
    let service = empty.plain().await;
    let operators = Uuid::from_u128(9);
    let take = async |is_dry| {
        let mode = Mode { is_dry, with_running: false };
        import(&service.records, &from, operators, mode).await.unwrap()
    };
    assert_eq!(take(true).await, [(VM.to_string(), Taken::New)]);
    assert!(service.records.all().await.unwrap().is_empty(), "a dry run changes nothing");
    assert_eq!(take(false).await, [(VM.to_string(), Taken::New)]);
    assert_eq!(take(false).await, [(VM.to_string(), Taken::Same)]);
    let kept = service.records.of_vm(VM).await.unwrap().unwrap().record;
    assert_eq!((kept.owner_uuid, kept.account_uuid), (Some(OWNER), Some(operators)));
    (paused.state, paused.num_sync_phases) = (State::Failed, 3);
    old.records.overwrite(&paused).await.unwrap();
    let differs = Taken::Differs(vec!["num_sync_phases".into(), "state".into()]);
    assert_eq!(take(false).await, [(VM.to_string(), differs)]);
    let unchanged = service.records.of_vm(VM).await.unwrap().unwrap().record;
    assert_eq!(unchanged.to_json(), kept.to_json(), "what is here stays");
    // A running migration is another service's, unless the operator says that no service works on it.
    let running = record(
        json!({"id": Uuid::from_u128(4), "vm_uuid": Uuid::from_u128(5), "state": "running"}),
    );
    old.records.overwrite(&running).await.unwrap();
    world.services.vmapi.set(&running.vm_uuid.to_string(), "running", None);
    let of_running = |taken: Vec<(String, Taken)>| {
        taken.into_iter().find(|(vm, _)| *vm == running.vm_uuid.to_string()).unwrap().1
    };
    assert_eq!(of_running(take(false).await), Taken::Runs);
    assert!(service.records.of_vm(running.vm_uuid).await.unwrap().is_none());
    let forced = Mode { is_dry: false, with_running: true };
    let taken = import(&service.records, &from, operators, forced).await.unwrap();
    assert_eq!(of_running(taken), Taken::New);
    let kept = old.records.get(running.id).await.unwrap().unwrap();
    old.records.remove(&kept, None, crate::records::Rest::Stays).await.unwrap();
    // One that cannot be read stops no other.
    let stranger = Uuid::from_u128(77);
    let foreign = record(json!({"id": Uuid::from_u128(3), "vm_uuid": stranger}));
    old.records.overwrite(&foreign).await.unwrap();
    let taken = take(false).await;
    assert_eq!(taken.len(), 2, "{taken:?}");
    assert!(
        taken.iter().any(|(vm, became)| {
            *vm == stranger.to_string()
                && matches!(became, Taken::Refused(why) if why.contains("not"))
        }),
        "{taken:?}"
    );
}
