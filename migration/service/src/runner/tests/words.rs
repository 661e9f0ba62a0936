// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Over HTTP: what is done by an operator's word, and what comes of it when a node is back.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use daemon::http::call;
use http::Request;
use mocks::faults::{Action, Rule};
use pretty_assertions::assert_eq;
use sdc_clients::http::{Call, Http};
use sdc_clients::identity::Identity;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::node::{Fails, ONE, TWO, VM};
use super::routed::Routed;
use super::story::{AUTOMATIC, beside};
use super::world::{DEAD_AFTER, World};
use crate::clock::Clock;
use crate::front::agent_routes;
use crate::pages;
use migration_core::protocol;
use migration_core::record::{Phase, State};

/// The copies that the service names to the agent of a node that comes back.
async fn replaced(world: &Arc<World>, cn: Uuid) -> Value {
    answered(world, cn, "").await["replaced"].clone()
}

/// What the service answers the agent of a node that has these migrations open.
pub async fn answered(world: &Arc<World>, cn: Uuid, open: &str) -> Value {
    let routes = agent_routes(world.plain().await.clone());
    let path = format!("/agents/{cn}/replaced");
    let another = Identity::Agent(Uuid::from_u128(99));
    for other in [None, Some(Identity::Service), Some(Identity::Volapi), Some(another)] {
        let request = Request::get(&path).extension(other).body(Body::empty()).unwrap();
        assert_eq!(call(routes.clone(), request).await.status(), 403, "{other:?}");
    }
    let request = Request::get(&path).body(Body::empty()).unwrap();
    assert_eq!(call(routes.clone(), request).await.status(), 403);
    let routed = Arc::new(Routed(routes, Some(Identity::Agent(cn))));
    let http = Http::with_transport("https://m.sim", "agent", routed).unwrap();
    let call = Call::get(&["agents", &cn.to_string(), "replaced"]).query("open", open);
    let answer = http.execute(call).await.unwrap();
    answer.json("the copies that were replaced").unwrap()
}

pub async fn page(world: &Arc<World>, path: &str) -> String {
    let routes = pages::router(world.plain().await.clone());
    let answer = call(routes, Request::get(path).body(Body::empty()).unwrap()).await;
    let body = daemon::http::collect(answer.into_body(), 1 << 20, Duration::from_secs(9)).await;
    String::from_utf8(body.unwrap().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)] // M22 M55 M48
async fn a_source_that_is_declared_dead_is_recorded_kept_down_and_an_alert_when_it_is_back() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.power(ONE, false);
        assert_eq!(world.act("switch").await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Switch, State::Failed));
        assert_eq!(
            record.error.as_deref(),
            Some("migration-agent on the source's node does not answer")
        );
        let (status, body) = world.act(&format!("switch&source_dead={TWO}")).await;
        assert_eq!((status, &body["code"]), (409, &json!("InvalidArgument")), "{body}");
        assert!(world.record().await.unwrap().intent.source_dead.is_none());
        assert_eq!(replaced(&world, ONE).await, json!([]));
        assert_eq!(world.declare(&format!("switch&source_dead={ONE}")).await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!(record.state, State::Successful, "{:?}", record.error);
        let word = record.intent.source_dead.clone().unwrap();
        assert_eq!((word.by, word.at <= world.centre().clock.now()), (Uuid::nil(), true));
    })
    .await;
    {
        let centre = world.centre();
        let copy = centre.hosts[&TWO].copy.as_ref().unwrap();
        assert!(copy.running && !copy.hidden);
        assert_eq!((&centre.broken, &world.record_in_vmapi()["server_uuid"]), (&None, &json!(TWO)));
    }
    assert!(page(&world, "/status").await.contains("the source's node was declared dead"));
    assert!(page(&world, "/metrics").await.contains("migration_service_migrations_returned 0"));
    assert_eq!(replaced(&world, TWO).await, json!([]));
    // The node is back: its agent asks before anything boots, and hides the copy.
    let id = world.record().await.unwrap().id;
    assert_eq!(replaced(&world, ONE).await, json!([id]));
    assert!(page(&world, "/status").await.contains("is back since"));
    assert!(page(&world, "/metrics").await.contains("migration_service_migrations_returned 1"));
    {
        let mut centre = world.centre();
        let copy = centre.hosts.get_mut(&ONE).unwrap().copy.as_mut().unwrap();
        (copy.hidden, copy.autoboot) = (true, false);
    }
    world.power(ONE, true);
    beside(&world, async {
        assert_eq!(world.act("finalize&force=true").await.0, 200);
        assert!(world.settled().await.is_none());
    })
    .await;
    assert!(world.centre().hosts[&ONE].copy.is_none());
    assert_eq!(replaced(&world, ONE).await, json!([]));
}

#[tokio::test(start_paused = true)] // M102
async fn an_agent_that_answers_with_an_error_is_not_dead_whatever_an_operator_says() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.centre().hosts.get_mut(&ONE).unwrap().is_unwell = true;
        for really in ["", "&really=true"] {
            let (status, body) = world.declare(&format!("switch&source_dead={ONE}{really}")).await;
            assert_eq!((status, &body["code"]), (412, &json!("PreconditionFailed")), "{body}");
            let why = body["message"].as_str().unwrap();
            assert!(why.contains("answers: it is not dead") && !why.contains("--"), "{why}");
        }
        assert!(world.record().await.unwrap().intent.source_dead.is_none());
        // It was silent when it was declared dead, and answers meanwhile.
        world.cut_off(ONE);
        assert_eq!(world.declare(&format!("switch&source_dead={ONE}")).await.0, 202);
        world.centre().hosts.get_mut(&ONE).unwrap().is_silent = false;
        let record = world.settled().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Switch, State::Failed));
        assert_eq!(record.error.as_deref(), Some("the source's node answers: it is not dead"));
    })
    .await;
    let centre = world.centre();
    assert_eq!((&centre.broken, &world.record_in_vmapi()["server_uuid"]), (&None, &json!(ONE)));
    assert!(centre.hosts[&ONE].copy.as_ref().unwrap().running);
    assert!(!centre.hosts[&TWO].copy.as_ref().unwrap().running);
}

#[tokio::test(start_paused = true)] // M105
async fn a_node_is_not_taken_for_dead_while_it_was_heard_of_late_or_that_is_unknown() {
    for (what, says) in [
        ("young", "the last heartbeat of"),
        ("a word", "asked whether its copies were replaced 29"),
        ("CNAPI restarted", "has no heartbeat of"),
        ("CNAPI forgot it", "does not know"),
        ("CNAPI is down", "did not answer when"),
    ] {
        let world = World::new(true);
        beside(&world, async {
            world.synced().await;
            world.power(ONE, false);
            if what == "CNAPI restarted" {
                world.services.cnapi.restart();
            }
            let fails = |status, code: &str| {
                let body = Some(json!({"code": code, "message": code}));
                let action = Action::Status { status, body, retry_after: None };
                let path = format!("/servers/{ONE}");
                world.services.cnapi.faults().add(Rule::new("GET", &path, action));
            };
            let switch = format!("switch&source_dead={ONE}");
            if what != "young" {
                sleep(DEAD_AFTER).await;
            }
            match what {
                "a word" => {
                    answered(&world, ONE, "").await;
                    sleep(Duration::from_secs(290)).await;
                }
                "CNAPI forgot it" => fails(404, "ResourceNotFound"),
                "CNAPI is down" => fails(500, "InternalError"),
                _ => {}
            }
            let (status, body) = world.act(&switch).await;
            let why = body["message"].as_str().unwrap_or_default();
            assert_eq!(status, 412, "{what}: {body}");
            assert!(why.contains(says) && why.contains("--really"), "{what}: {why}");
            assert!(world.record().await.unwrap().intent.source_dead.is_none(), "{what}");
            let (_, signs) = world.ask("GET", &format!("/migrations/{VM}/signs"), json!({})).await;
            assert_eq!(signs["source"]["alive"], why, "{what}: {signs}");
            assert_eq!(signs["target"]["answers"], json!(true), "{what}: {signs}");
            assert_eq!(world.act(&format!("{switch}&really=true")).await.0, 202, "{what}");
            let record = world.settled().await.unwrap();
            assert_eq!(record.state, State::Successful, "{what}: {:?}", record.error);
        })
        .await;
        assert!(world.centre().hosts[&TWO].copy.as_ref().unwrap().running, "{what}");
    }
}

#[tokio::test(start_paused = true)] // M105
async fn a_clock_that_is_ahead_makes_no_node_dead() {
    for hours in [1, 24] {
        let world = World::new(true);
        let ahead = world.centre().clock.now().plus(hours * 3_600_000);
        world.centre().clock = Clock::simulated(ahead);
        beside(&world, async {
            world.synced().await;
            // Its agent hangs, and the node sends CNAPI its heartbeats.
            world.centre().hosts.get_mut(&ONE).unwrap().is_stuck = true;
            let (status, body) = world.declare(&format!("switch&source_dead={ONE}")).await;
            assert_eq!(status, 412, "{hours}: {body}");
            let why = body["message"].as_str().unwrap();
            assert!(why.contains("and that of the other node"), "{why}");
        })
        .await;
        assert!(!world.centre().hosts[&TWO].copy.as_ref().unwrap().running);
    }
}

#[tokio::test(start_paused = true)] // M103
async fn a_node_that_is_declared_dead_is_waited_for_seconds() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.power(ONE, false);
        world.centre().hosts.get_mut(&ONE).unwrap().is_stuck = true;
        sleep(DEAD_AFTER).await;
        let began = Instant::now();
        assert_eq!(world.act(&format!("switch&source_dead={ONE}")).await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!(record.state, State::Successful, "{:?}", record.error);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(60), "{took:?}");
    })
    .await;
    assert!(world.centre().hosts[&TWO].copy.as_ref().unwrap().running);
}

#[tokio::test(start_paused = true)] // M101
async fn an_agent_is_told_which_of_its_open_migrations_the_store_knows_or_knew() {
    let world = World::new(true);
    let never = Uuid::from_u128(77);
    let mut gone = None;
    beside(&world, async {
        world.command(AUTOMATIC).await.unwrap();
        let record = world.settled().await.unwrap();
        let open = format!("{}.1,{never}.1", record.id);
        assert_eq!(answered(&world, ONE, &open).await["known"], json!([record.id]));
        assert_eq!(world.act("finalize").await.0, 200);
        assert!(world.settled().await.is_none());
        gone = Some(record.id);
    })
    .await;
    // The record has gone: the store has known it all the same.
    let open = format!("{}.1,{never}.1", gone.unwrap());
    assert_eq!(answered(&world, ONE, &open).await["known"], json!([gone.unwrap()]));
}

#[tokio::test(start_paused = true)] // M106
async fn an_agent_is_told_of_the_end_of_a_begin_that_chose_no_node() {
    let world = World::new(true);
    let none = json!({"code": "NoAllocatableServersError", "message": "none"});
    let answer = Action::Status { status: 409, body: Some(none), retry_after: None };
    world.services.cnapi.faults().add(Rule::new("POST", "/allocate", answer));
    beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        let record = world.settled().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Begin, State::Failed));
        let open_there = world.centre().hosts[&ONE].open();
        assert_eq!(open_there[0]["migration"], json!(record.id), "the source was observed");
        let open = format!("{}.{}", record.id, open_there[0]["revision"]);
        assert_eq!(answered(&world, ONE, &open).await["over"], json!([]));
        assert_eq!(world.act("abort").await.0, 200);
        let answer = answered(&world, ONE, &open).await;
        assert_eq!((&answer["known"], &answer["over"]), (&json!([record.id]), &json!([record.id])));
    })
    .await;
}

#[tokio::test(start_paused = true)] // M58
async fn a_vm_that_is_shown_nowhere_is_told_for_as_long_as_that_lasts() {
    let world = World::new(true);
    let sentence = "no copy of the VM is shown (for ";
    beside(&world, async {
        world.synced().await;
        let state = protocol::State::Failed { error: "vmadm is busy".into(), fatal: false };
        let fails = Fails { name: "show", state, times: 30, moved: |_| (0, 0) };
        world.centre().hosts.get_mut(&TWO).unwrap().fails = Some(fails);
        assert_eq!(world.act("switch").await.0, 202);
        let within = Instant::now() + Duration::from_secs(300);
        while !page(&world, "/status").await.contains(sentence) {
            assert!(Instant::now() < within, "it is not shown");
            sleep(Duration::from_secs(1)).await;
        }
        let since = world.record().await.unwrap().intent.hidden_since.unwrap();
        assert!(world.centre().clock.now().since(since) > 60_000);
        assert!(world.centre().hosts.values().all(|host| host.copy.as_ref().unwrap().hidden));
        let record = world.settled().await.unwrap();
        assert_eq!(record.state, State::Successful, "{:?}", record.error);
    })
    .await;
    assert!(!page(&world, "/status").await.contains(sentence));
    assert_eq!(world.record().await.unwrap().intent.hidden_since, None);
}

#[tokio::test(start_paused = true)] // M55 M57
async fn a_target_that_is_declared_dead_is_given_up_only_with_what_it_wrote() {
    let world = World::new(true);
    let mut gone = None;
    beside(&world, async {
        world.command(AUTOMATIC).await.unwrap();
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
        world.power(TWO, false);
        sleep(DEAD_AFTER).await;
        assert_eq!(world.act("rollback").await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Rollback, State::Failed));
        let error = "migration-agent on the target's node does not answer";
        assert_eq!(record.error.as_deref(), Some(error));
        // What it wrote is not given up by that word alone.
        let (status, body) = world.act(&format!("rollback&target_dead={TWO}")).await;
        assert_eq!(status, 412, "{body}");
        let (_, answer) = world.act(&format!("rollback&target_dead={TWO}&discard=true")).await;
        let id = world.record().await.unwrap().id;
        assert!(world.settled().await.is_none());
        gone = Some(id);
        let job = answer["job_uuid"].as_str().unwrap();
        let (status, job) = world.ask("GET", &format!("/jobs/{job}"), json!({})).await;
        assert_eq!((status, &job["execution"]), (200, &json!("succeeded")), "{job}");
        // It is over: nothing is asked of the nodes any more, and nothing counts for the limits.
        let orders = world.centre().hosts[&ONE].orders.len();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.centre().hosts[&ONE].orders.len(), orders);
    })
    .await;
    assert_eq!(world.ask("GET", &format!("/migrations/{VM}"), json!({})).await.0, 404);
    assert_eq!(replaced(&world, TWO).await, json!([gone.unwrap()]));
    assert!(
        page(&world, "/status").await.contains("the target's node was declared dead and is back")
    );
    let centre = world.centre();
    let copy = centre.hosts[&ONE].copy.as_ref().unwrap();
    assert!(copy.running && copy.autoboot && !copy.hidden);
    assert_eq!((&centre.broken, &world.record_in_vmapi()["server_uuid"]), (&None, &json!(ONE)));
}

#[tokio::test(start_paused = true)] // M23 M55
async fn a_rollback_loses_what_the_target_wrote_by_the_word_of_an_operator_only() {
    let world = World::new(true);
    beside(&world, async {
        world.command(AUTOMATIC).await.unwrap();
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
        let sent = {
            let mut centre = world.centre();
            // As the deployed service leaves it, which removes all sync snapshots.
            let source = centre.hosts.get_mut(&ONE).unwrap();
            source.copy.as_mut().unwrap().snapshots.clear();
            source.data
        };
        assert_eq!(world.act("rollback").await.0, 202);
        let record = world.settled().await.unwrap();
        assert!(record.error.as_deref().unwrap().contains("no snapshot in common"), "{record:?}");
        assert!(world.centre().hosts[&TWO].copy.as_ref().unwrap().running, "nothing was stopped");
        assert_eq!(world.act("rollback&discard=true").await.0, 202);
        assert!(world.settled().await.is_none());
        assert_eq!(world.centre().hosts[&ONE].data, sent + 1000, "it booted with what it had");
    })
    .await;
    let centre = world.centre();
    assert!(centre.hosts[&TWO].copy.is_none() && centre.hosts[&ONE].copy.as_ref().unwrap().running);
    assert_eq!(centre.broken, None);
}

#[tokio::test(start_paused = true)] // M56
async fn a_command_does_not_wait_for_a_step_that_waits() {
    for (action, want) in [("abort&force=true", State::Aborted), ("pause", State::Paused)] {
        let world = World::new(true);
        beside(&world, async {
            assert_eq!(world.act("begin").await.0, 202);
            world.settled().await.unwrap();
            world.centre().hosts.get_mut(&TWO).unwrap().is_silent = true;
            assert_eq!(world.act("sync").await.0, 202);
            // Waits of 1, 2, 4, 8, 16 s, and after each 5 s of silence: now it waits for 32 s.
            sleep(Duration::from_secs(80)).await;
            assert_eq!(world.act("abort").await.0, 412, "without force");
            world.centre().hosts.get_mut(&TWO).unwrap().is_silent = false;
            let began = Instant::now();
            assert_eq!(world.act(action).await.0, 202, "{action}");
            let record = world.settled().await.unwrap();
            assert_eq!(record.state, want, "{action}: {:?}", record.error);
            assert!(began.elapsed() < Duration::from_secs(6), "{action}: {:?}", began.elapsed());
        })
        .await;
        let centre = world.centre();
        assert!(!centre.hosts[&ONE].copy.as_ref().unwrap().quota_lifted, "{action}");
        assert_eq!(centre.hosts[&TWO].copy.is_none(), want == State::Aborted);
    }
}

#[tokio::test(start_paused = true)] // M24 M64
async fn a_stream_is_asked_about_each_second_and_a_command_does_not_wait_for_it() {
    let world = World::new(true);
    beside(&world, async {
        assert_eq!(world.act("begin").await.0, 202);
        world.settled().await.unwrap();
        let state = protocol::State::Running;
        let fails =
            Fails { name: "send", state, times: 600, moved: |left| (600 - u64::from(left), 600) };
        world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
        let observed = world.centre().hosts[&ONE].observed;
        assert_eq!(world.act("sync").await.0, 202);
        sleep(Duration::from_secs(60)).await;
        let asked = 600 - world.centre().hosts[&ONE].fails.as_ref().unwrap().times;
        let observed = world.centre().hosts[&ONE].observed - observed;
        assert!((55..=60).contains(&asked), "{asked}");
        // Each time, `zfs` lists everything.
        assert!((5..=8).contains(&observed), "{observed}");
        let began = Instant::now();
        assert_eq!(world.act("pause").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Paused);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)] // M140
async fn an_order_that_is_given_again_writes_nothing() {
    for order in ["pause", "abort&force=true", "schedule&scheduled_timestamp=AT", "finalize"] {
        let world = World::new(true);
        let order =
            order.replace("AT", &world.centre().clock.now().to_string().replace("2026", "2027"));
        beside(&world, async {
            world.synced().await;
            match order.as_str() {
                "finalize" => {
                    assert_eq!(world.act("switch").await.0, 202);
                    assert_eq!(world.settled().await.unwrap().state, State::Successful);
                }
                // It runs from here on, and no service does its rounds after this.
                "pause" | "abort&force=true" => {
                    let state = protocol::State::Running;
                    let fails = Fails { name: "send", state, times: 600, moved: |_| (1, 600) };
                    world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
                    assert_eq!(world.act("sync").await.0, 202);
                    sleep(Duration::from_secs(5)).await;
                }
                _ => {}
            }
        })
        .await;
        let query = format!("migration_action={order}");
        let records = &world.plain().await.records;
        world.command(&query).await.unwrap();
        let kept = records.of_vm(VM).await.unwrap().unwrap();
        for _ in 0..3 {
            world.command(&query).await.unwrap();
        }
        assert!(!records.is_changed(&kept).await.unwrap(), "{order} wrote again");
    }
}

#[tokio::test(start_paused = true)] // M4
async fn of_two_begins_at_once_one_wins() {
    let world = World::new(true);
    let (one, two) = tokio::join!(world.act("begin"), world.act("begin"));
    let mut statuses = [one.0, two.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 412], "{one:?} {two:?}");
}

#[tokio::test(start_paused = true)] // M57
async fn a_job_is_known_after_its_record_has_gone() {
    for end in ["finalize", "rollback"] {
        let world = World::new(true);
        beside(&world, async {
            let mut jobs = Vec::new();
            for action in ["begin", "sync", "switch", end] {
                let (status, body) = world.act(action).await;
                assert!(status < 300, "{action}: {body}");
                jobs.extend(body["job_uuid"].as_str().map(|job| (action, job.to_owned())));
                world.settled().await;
            }
            assert!(world.record().await.is_none());
            assert_eq!(jobs.len(), if end == "rollback" { 4 } else { 3 });
            let get = async |job: &str| world.ask("GET", &format!("/jobs/{job}"), json!({})).await;
            for (action, job) in &jobs {
                let (status, job) = get(job).await;
                let shown = (&job["name"], &job["execution"], &job["chain_results"][0]["result"]);
                let name = json!(format!("migrate-{action}"));
                assert_eq!(
                    (status, shown),
                    (200, (&name, &json!("succeeded"), &json!("OK"))),
                    "{job}"
                );
            }
            assert_eq!(get(&Uuid::nil().to_string()).await.0, 404);
            assert_eq!(get("x").await.0, 404, "VMAPI's answer");
        })
        .await;
    }
}
