// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a migration asks of CNAPI. The mock, which is held to recordings of the real one, is the judge.

use std::sync::Arc;
use std::time::Duration;

use mocks::faults::{Action, Rule};
use pretty_assertions::assert_eq;
use sdc_clients::cnapi::TicketOrder;
use serde_json::json;
use tokio::time::sleep;

use super::centre::server;
use super::node::{ONE, OWNER, TWO, VM};
use super::story::{AUTOMATIC, beside};
use super::world::World;
use crate::peers::MARK;
use migration_core::record::{Phase, State};

/// Does these actions one after the other.
async fn told(actions: &[&str]) -> Arc<World> {
    let world = World::new(true);
    beside(&world, async {
        for action in actions {
            world.command(action).await.unwrap();
            world.settled().await;
        }
    })
    .await;
    world
}

fn creations(world: &World) -> usize {
    let of_vms = |it: &&mocks::faults::Seen| it.method == "POST" && it.path.ends_with("/vms");
    world.services.asked().iter().filter(of_vms).count()
}

#[tokio::test(start_paused = true)] // CN9
async fn no_service_refuses_a_request_of_any_story() {
    let action = |name: &str| format!("migration_action={name}");
    let (begin, sync, switch) = (action("begin"), action("sync"), action("switch"));
    let placed = format!("{begin}&affinity=instance==~web*;role!=~db");
    let (finalize, rollback, abort) = (action("finalize"), action("rollback"), action("abort"));
    let stories: [&[&str]; 5] = [
        &[&begin, &sync, &switch, &finalize],
        &[&placed, &sync, &switch, &rollback],
        &[AUTOMATIC, &finalize],
        &[&begin, &abort],
        &[&begin, &sync, &abort],
    ];
    for story in stories {
        let world = told(story).await;
        let failed = world.record().await.filter(|record| record.state == State::Failed);
        assert_eq!(failed.and_then(|record| record.error.clone()), None, "{story:?}");
        assert_eq!((world.services.cnapi.deaths(), creations(&world)), (0, 1), "{story:?}");
        assert_eq!(world.tickets(), Vec::<serde_json::Value>::new(), "{story:?}");
        for seen in world.services.asked() {
            // A network is looked for among the pools first.
            let is_done = seen.status.is_some_and(|status| (200..300).contains(&status));
            assert!(is_done || seen.path.starts_with("/network_pools/"), "{story:?}: {seen:?}");
        }
    }
}

#[tokio::test(start_paused = true)] // CN10
async fn one_creation_is_sent_whether_or_not_its_answer_comes() {
    for action in [Action::DropResponse, Action::Delay { ms: 20_000 }] {
        let world = World::new(true);
        world.services.cnapi.faults().add(Rule::new("POST", "/servers/*/vms", action).times(1));
        let record = beside(&world, async {
            world.command("migration_action=begin").await.unwrap();
            world.settled().await.unwrap()
        });
        let record = record.await;
        assert_eq!(
            (record.phase, record.state),
            (Phase::Begin, State::Paused),
            "{:?}",
            record.error
        );
        assert_eq!(creations(&world), 1);
    }
}

#[tokio::test(start_paused = true)] // CN10
async fn a_creation_that_is_lost_is_sent_once_more_and_not_again() {
    for (lost, want) in [(1, State::Paused), (9, State::Failed)] {
        let world = World::new(true);
        let rule = Rule::new("POST", "/servers/*/vms", Action::Cut);
        world.services.cnapi.faults().add(rule.times(lost));
        let record = beside(&world, async {
            world.command("migration_action=begin").await.unwrap();
            world.settled().await.unwrap()
        });
        let record = record.await;
        assert_eq!((record.phase, record.state), (Phase::Begin, want), "{:?}", record.error);
        assert_eq!(creations(&world), 2, "{lost}");
        if want == State::Failed {
            assert!(record.error.as_ref().unwrap().contains("two orders"), "{:?}", record.error);
        }
    }
}

#[tokio::test(start_paused = true)] // CN16
async fn a_creation_that_cnapi_refuses_was_not_ordered() {
    let world = World::new(true);
    let body = json!({"code": "InternalError", "message": "failed to resolve imgapi address"});
    let answer = Action::Status { status: 500, body: Some(body), retry_after: None };
    world.services.cnapi.faults().add(Rule::new("POST", "/servers/*/vms", answer).times(2));
    let record = beside(&world, async {
        let began = tokio::time::Instant::now();
        world.command("migration_action=begin").await.unwrap();
        let again = loop {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            if let Some(again) = &world.record().await.unwrap().intent.again {
                break again.clone();
            }
        };
        assert!(again.why.contains("failed to resolve imgapi address"), "{}", again.why);
        let record = world.settled().await.unwrap();
        assert!(began.elapsed().as_secs() < 120, "a lost order may show for a quarter of an hour");
        record
    });
    assert_eq!(record.await.state, State::Paused);
    assert_eq!(creations(&world), 3);
}

#[tokio::test(start_paused = true)] // CN15
async fn a_guest_without_an_image_is_refused_before_cnapi_is_asked() {
    for is_in_vmapi in [true, false] {
        let world = World::new(true);
        let disk =
            json!([{"zfs_filesystem": format!("zones/{VM}/disk0"), "model": "virtio", "size": 1}]);
        let guest = json!({"brand": "bhyve", "image_uuid": null, "disks": disk});
        let guest = guest.as_object().unwrap().clone();
        world.centre().hosts.get_mut(&ONE).unwrap().more.clone_from(&guest);
        if is_in_vmapi {
            let object = world.centre().hosts[&ONE].object(ONE).unwrap();
            world.services.vmapi.seed_from_vms(&[object], &ONE.to_string());
        }
        let (status, body) = world.act("begin").await;
        assert_eq!(status, 412, "{body}");
        assert!(body["message"].as_str().unwrap().contains("first disk has no image"), "{body}");
        let is_order =
            |it: &mocks::faults::Seen| it.path.ends_with("/vms") || it.path == "/allocate";
        assert!(!world.services.asked().iter().any(is_order));
        assert_eq!(world.services.cnapi.deaths(), 0);
    }
}

#[tokio::test(start_paused = true)] // CN11
async fn what_cnapi_refuses_is_told_and_not_repeated() {
    let error =
        json!({ "field": "vm", "code": "Invalid", "message": "VM \"ram\" is not a number" });
    let body = json!({ "code": "InvalidParameters", "message": "Request parameters failed validation",
        "errors": [error] });
    let none = json!({ "code": "NoAllocatableServersError",
        "message": "No compute resources available: no servers with enough unreserved RAM" });
    let cases = [
        (500, body, "VM \"ram\" is not a number"),
        (409, none, "no servers with enough unreserved RAM"),
    ];
    for (status, body, reason) in cases {
        let world = World::new(true);
        let answer = Action::Status { status, body: Some(body), retry_after: None };
        world.services.cnapi.faults().add(Rule::new("POST", "/allocate", answer));
        let record = beside(&world, async {
            world.command("migration_action=begin").await.unwrap();
            world.settled().await.unwrap()
        });
        let record = record.await;
        assert_eq!((record.phase, record.state), (Phase::Begin, State::Failed));
        assert!(record.error.as_ref().unwrap().contains(reason), "{:?}", record.error);
        let asked = world.services.asked().iter().filter(|it| it.path == "/allocate").count();
        assert_eq!(asked, 1);
    }
}

#[tokio::test(start_paused = true)] // CN11
async fn room_that_a_lost_store_has_reserved_is_given_back_where_no_node_fits() {
    for is_ours in [true, false] {
        let world = World::new(true);
        world.services.cnapi.put_server(server(TWO, 2048));
        let mut extra =
            json!({"owner_uuid": OWNER, "max_physical_memory": 1024, "ram": 1024, "quota": 10});
        if is_ours {
            extra[MARK] = json!(ONE);
        }
        let lost = TicketOrder {
            scope: "vm".to_owned(),
            id: VM.to_string(),
            expires_at: "2026-03-08T00:00:00Z".parse().unwrap(),
            action: Some("provision".to_owned()),
            extra: extra.as_object().cloned(),
        };
        let cnapi = &world.plain().await.peers.cnapi;
        cnapi.queue_ticket(&TWO.to_string(), &lost).await.unwrap();
        let record = beside(&world, async {
            world.command("migration_action=begin").await.unwrap();
            world.settled().await.unwrap()
        });
        let record = record.await;
        let want = if is_ours { State::Paused } else { State::Failed };
        assert_eq!((record.phase, record.state), (Phase::Begin, want), "{:?}", record.error);
        assert_eq!(world.tickets().len(), 1, "{:?}", world.tickets());
    }
}

#[tokio::test(start_paused = true)] // CN12
async fn a_target_counts_on_its_node_until_vmapi_has_it_there() {
    let world = World::new(true);
    beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        world.settled().await.unwrap();
        let open = world.tickets();
        let [ticket] = open.as_slice() else { panic!("{open:?}") };
        assert_eq!(
            (&ticket["server_uuid"], &ticket["scope"], &ticket["action"]),
            (&json!(TWO), &json!("vm"), &json!("provision"))
        );
        assert_eq!(ticket["extra"]["ram"], json!(1024));
        assert!(ticket["expires_at"].as_str().unwrap().starts_with("2026-03-08T"));
    })
    .await;
    assert_eq!(world.record_in_vmapi()["server_uuid"], json!(ONE));
}

#[tokio::test(start_paused = true)] // CN14
async fn a_record_that_is_removed_by_hand_gives_its_tickets_back() {
    let world = told(&["migration_action=begin"]).await;
    assert_eq!(world.tickets().len(), 1);
    let (status, _) = world.ask("DELETE", &format!("/migrations/{VM}"), json!({})).await;
    assert_eq!(status, 200);
    assert!(world.record().await.is_none());
    assert_eq!(world.tickets(), Vec::<serde_json::Value>::new());
}

/// What CNAPI was asked with.
fn bodies(world: &World, is_meant: impl Fn(&str) -> bool) -> Vec<serde_json::Value> {
    let asked =
        world.services.asked().into_iter().filter(|it| it.method == "POST" && is_meant(&it.path));
    asked.map(|it| serde_json::from_str(&it.body).unwrap()).collect()
}

/// The rules of the placements that CNAPI was asked for.
fn rules(world: &World) -> Vec<serde_json::Value> {
    let asked = bodies(world, |path| path == "/allocate").into_iter();
    asked.map(|mut it| it["vm"]["affinity"].take()).collect()
}

#[tokio::test(start_paused = true)] // M229
async fn a_placement_names_all_that_the_creation_will() {
    let world = World::new(true);
    let more = json!({"internal_metadata": {"encrypted": true}, "docker": true, "brand": "lx", "kernel_version": "4.3"});
    world.centre().hosts.get_mut(&ONE).unwrap().more = more.as_object().unwrap().clone();
    let refused = beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        world.settled().await.unwrap()
    });
    let refused = refused.await;
    let why = refused.error.clone().unwrap_or_default();
    assert!(why.contains("no servers which are zpool encrypted"), "{why}");
    let mut encrypted = server(TWO, 65536);
    encrypted["sysinfo"]["Zpool Encrypted"] = json!(true);
    world.services.cnapi.put_server(encrypted);
    let record = beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        world.settled().await.unwrap()
    });
    let record = record.await;
    assert_eq!(record.state, State::Paused, "{:?}", record.error);
    let placed = bodies(&world, |path| path == "/allocate").pop().unwrap();
    let created = bodies(&world, |path| path.ends_with("/vms")).pop().unwrap();
    for (name, value) in created.as_object().unwrap().iter().filter(|(name, _)| *name != "image") {
        assert_eq!(&placed["vm"][name], value, "{name}");
    }
    assert_eq!((&placed["vm"]["vm_uuid"], &placed["vm"]["ram"]), (&json!(VM), &json!(1024)));
}

#[tokio::test(start_paused = true)] // M211
async fn the_rules_of_a_placement_are_those_typed_else_those_of_the_vm() {
    let rule = |value: &str| json!({"key": "role", "operator": "!=", "value": value, "isSoft": true, "valueType": "exact"});
    let stored = |affinity: serde_json::Value| json!({"internal_metadata": {"affinity": affinity}});
    let typed = json!([rule("db")]).to_string();
    for (of_vm, typed, want) in [
        (json!({}), None, json!(null)),
        (stored(json!(["role!=~web"])), None, json!([rule("web")])),
        (stored(json!([rule("web")])), None, json!([rule("web")])),
        (stored(json!(json!([rule("web")]).to_string())), None, json!([rule("web")])),
        (stored(json!({"odd": true})), None, json!(null)),
        (stored(json!("role!=web")), None, json!(null)),
        (stored(json!(["role!=~web"])), Some(typed.as_str()), json!([rule("db")])),
        (json!({}), Some("role!=~db"), json!([rule("db")])),
    ] {
        let world = World::new(true);
        world.centre().hosts.get_mut(&ONE).unwrap().more = of_vm.as_object().unwrap().clone();
        let typed = typed.map(|rules| json!({"affinity": rules})).unwrap_or(json!({}));
        let record = beside(&world, async {
            let path = format!("/vms/{VM}?action=migrate&migration_action=begin");
            let (status, body) = world.ask("POST", &path, typed.clone()).await;
            assert_eq!(status, 202, "{body}");
            world.settled().await.unwrap()
        });
        let record = record.await;
        assert_eq!(record.state, State::Paused, "{of_vm}: {:?}", record.error);
        assert_eq!(rules(&world), [want], "{of_vm} {typed}");
    }
}

#[tokio::test(start_paused = true)] // M244
async fn a_ticket_that_cnapi_could_not_release_is_released_when_it_can() {
    let world = told(&["migration_action=begin"]).await;
    assert_eq!(world.tickets().len(), 1);
    let away = Action::Status { status: 503, body: None, retry_after: None };
    let faults = world.services.cnapi.faults();
    faults.add(Rule::new("PUT", "/tickets/*/release", away));
    beside(&world, async {
        assert_eq!(world.act("abort").await.0, 202);
        assert!(world.settled().await.is_none_or(|it| it.state == State::Aborted));
        assert_eq!(world.tickets().len(), 1, "CNAPI is away");
        sleep(Duration::from_secs(180)).await;
        assert_eq!(world.tickets().len(), 1);
        faults.clear();
        sleep(Duration::from_secs(120)).await;
        assert_eq!(world.tickets(), Vec::<serde_json::Value>::new());
    })
    .await;
}

#[tokio::test(start_paused = true)] // M245
async fn an_abort_of_a_begin_without_target_has_a_job() {
    let world = World::new(true);
    world.services.cnapi.put_server(server(TWO, 10));
    beside(&world, async {
        assert_eq!(world.act("begin").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Failed);
        let (status, body) = world.act("abort").await;
        let job = body["job_uuid"].as_str().unwrap_or_default().to_owned();
        assert_eq!((status, job.len()), (200, 36), "{body}");
        let (status, job) = world.ask("GET", &format!("/jobs/{job}"), json!({})).await;
        assert_eq!((status, &job["execution"]), (200, &json!("succeeded")), "{job}");
    })
    .await;
}
