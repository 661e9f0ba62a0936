// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Over HTTP: what people do by hand meanwhile, and what the VM's owner may do while a migration waits.

use std::sync::Arc;
use std::time::Duration;

use mocks::napi::NewNic;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use super::node::{Fails, ONE, TWO, VM, mac};
use super::story::beside;
use super::words::page;
use super::world::World;
use migration_core::machine::Copy;
use migration_core::protocol;
use migration_core::record::{Phase, State};

fn on(world: &World, cn: Uuid) -> Copy {
    world.centre().hosts[&cn].copy.clone().unwrap()
}

#[tokio::test(start_paused = true)] // M111
async fn a_vm_that_was_deleted_by_hand_is_rescued_from_its_copy() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        // A node that was installed anew has deleted the VM's NIC.
        world.centre().hosts.get_mut(&ONE).unwrap().copy = None;
        assert!(world.services.napi.remove(&mac(VM)));
        for action in ["abort", "abort", "switch", "sync"] {
            let (status, body) = world.act(action).await;
            if status == 202 {
                let record = world.settled().await.unwrap();
                assert_eq!(record.state, State::Failed, "{action}");
                assert!(record.error.as_ref().unwrap().contains("no copy of the VM"), "{action}");
            } else {
                assert_eq!(status, 412, "{action}: {body}");
            }
            assert!(on(&world, TWO).hidden, "{action}");
        }
        assert_eq!(world.act("rescue").await.0, 202);
        assert_eq!(world.settled().await, None);
    })
    .await;
    let target = on(&world, TWO);
    assert!(target.running && target.autoboot && !target.hidden && target.snapshots.is_empty());
    let centre = world.centre();
    assert!(!centre.hosts[&TWO].held && !centre.hosts[&ONE].held && !world.is_reserved());
    assert_eq!(world.record_in_vmapi()["server_uuid"], json!(TWO));
    // M178
    let nic = world.services.napi.nic(&mac(VM)).unwrap();
    assert_eq!((&nic["belongs_to_uuid"], &nic["cn_uuid"]), (&json!(VM), &json!(TWO)));
    assert_eq!((centre.hosts[&ONE].over.len(), centre.hosts[&TWO].over.len()), (1, 1));
}

#[tokio::test(start_paused = true)] // M257
async fn two_copies_that_run_are_an_alarm_whose_verb_ends_it() {
    const LOOKS: Duration = Duration::from_secs(65);
    let world = World::new(true);
    let both = async |many: u8| {
        let metrics = page(&world, "/metrics").await;
        let line = format!("migration_service_migrations_both_run {many}");
        assert!(metrics.contains(&line), "{line}");
    };
    // What `get` says; an agent that does not answer takes nothing back.
    let told = async || {
        let (_, one) = world.ask("GET", &format!("/migrations/{VM}"), json!({})).await;
        one["needs"][0]["command"].as_str().unwrap().to_owned()
    };
    let boots = |cn: Uuid| {
        let mut centre = world.centre();
        centre.hosts.get_mut(&cn).unwrap().copy.as_mut().unwrap().running = true;
    };
    beside(&world, async {
        world.synced().await;
        sleep(LOOKS).await;
        both(0).await;
        boots(TWO);
        sleep(LOOKS).await;
        both(1).await;
        world.cut_off(TWO);
        sleep(LOOKS).await;
        both(1).await;
        world.centre().hosts.get_mut(&TWO).unwrap().is_silent = false;
        sleep(LOOKS).await;
        assert_eq!(told().await, format!("sdc-migrate abort {VM}"));
        assert_eq!(world.act("abort").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Aborted);
        both(0).await;
        assert!(world.centre().hosts[&TWO].copy.is_none() && on(&world, ONE).running);

        world.synced().await;
        assert_eq!(world.act("switch").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
        boots(ONE);
        sleep(LOOKS).await;
        both(1).await;
        assert!(page(&world, "/status").await.contains("the old one was booted by hand"));
        assert_eq!(told().await, format!("sdc-migrate finalize {VM}"));
        // It is stopped by hand.
        world.centre().hosts.get_mut(&ONE).unwrap().copy.as_mut().unwrap().running = false;
        sleep(LOOKS).await;
        both(0).await;
        boots(ONE);
        assert_eq!(world.act("finalize").await.0, 200);
        // What is left is the one that was aborted.
        assert_eq!(world.settled().await.unwrap().state, State::Aborted);
    })
    .await;
    assert!(world.centre().hosts[&ONE].copy.is_none() && on(&world, TWO).running);
}

#[tokio::test(start_paused = true)] // M178
async fn a_rescue_takes_no_address_that_is_another_machines_by_then() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.centre().hosts.get_mut(&ONE).unwrap().copy = None;
        let (napi, mac) = (&world.services.napi, mac(VM));
        assert!(napi.remove(&mac));
        let other = Uuid::from_u128(99).to_string();
        napi.add_nic(NewNic::zone(&mac, &other, &ONE.to_string())).unwrap();
        let taken = napi.nics();
        assert_eq!(world.act("rescue").await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!(record.state, State::Paused);
        let why = record.error.as_ref().unwrap();
        assert!(why.contains(&format!("gives the VM's NIC {mac} to the zone {other}")), "{why}");
        assert!(!on(&world, TWO).running);
        assert_eq!(napi.nics(), taken);
        assert_eq!(world.record_in_vmapi()["server_uuid"], json!(ONE));
        // NAPI gives it to the VM again: the same command goes on.
        let vm = json!(VM.to_string().to_uppercase());
        assert!(napi.store_unchecked(&mac, "belongs_to_uuid", &vm));
        assert_eq!(world.act("rescue").await.0, 202);
        assert_eq!(world.settled().await, None);
    })
    .await;
    assert!(on(&world, TWO).running);
    assert_eq!(world.record_in_vmapi()["server_uuid"], json!(TWO));
}

/// The next deletions on the target's node are refused by vmadm.
fn refuse_deletion(world: &World) {
    let error = "the copy cannot be deleted: dataset is busy".to_owned();
    let state = protocol::State::Failed { error, fatal: true };
    let fails = Fails { name: "delete", state, times: 1, moved: |_| (0, 0) };
    world.centre().hosts.get_mut(&TWO).unwrap().fails = Some(fails);
}

/// Whether VMAPI was asked.
async fn reaches(world: &Arc<World>, method: &str, query: &str) -> bool {
    let path = format!("/vms/{VM}");
    let asked = || {
        let all = world.services.vmapi.log().all();
        all.iter().filter(|it| (it.method.as_str(), &it.path) == (method, &path)).count()
    };
    let before = asked();
    let (status, body) = world.ask(method, &format!("{path}{query}"), json!({})).await;
    let is_asked = asked() > before;
    assert!(is_asked || status == 409, "{status} {body}");
    is_asked
}

#[tokio::test(start_paused = true)] // M111
async fn an_abort_whose_copy_is_not_deleted_says_so_lets_go_of_the_vm_and_is_ended_by_a_second_one()
{
    for is_forced in [false, true] {
        let world = World::new(true);
        beside(&world, async {
            world.synced().await;
            refuse_deletion(&world);
            assert_eq!(world.act("abort").await.0, 202);
            let record = world.settled().await.unwrap();
            assert_eq!((record.phase, record.state), (Phase::Abort, State::Failed));
            assert!(record.error.as_ref().unwrap().ends_with("dataset is busy"));
            let source = on(&world, ONE);
            assert!(source.running && source.snapshots.is_empty() && !source.quota_lifted);
            for action in ["stop", "reprovision", "update"] {
                assert!(reaches(&world, "POST", &format!("?action={action}")).await, "{action}");
            }
            if is_forced {
                refuse_deletion(&world);
            }
            let how = if is_forced { "abort&force=true" } else { "abort" };
            assert_eq!(world.act(how).await.0, 202);
            let record = world.settled().await.unwrap();
            assert_eq!(record.state, State::Aborted, "{:?}", record.error);
            let left = record.error.as_ref().is_some_and(|why| why.ends_with("dataset is busy"));
            assert_eq!(left, is_forced, "it names what is left");
        })
        .await;
        let centre = world.centre();
        assert_eq!(centre.hosts[&TWO].copy.is_some(), is_forced);
        assert_eq!((centre.hosts[&ONE].over.len(), centre.hosts[&TWO].over.len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)] // M31, M112
async fn while_a_migration_waits_the_vm_is_its_owners_and_a_deletion_ends_it_first() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        for action in ["start", "stop", "reboot", "update", "create_snapshot", "delete_snapshot"] {
            assert!(reaches(&world, "POST", &format!("?action={action}")).await, "{action}");
        }
        for action in ["reprovision", "rollback_snapshot"] {
            assert!(!reaches(&world, "POST", &format!("?action={action}")).await, "{action}");
        }
        refuse_deletion(&world);
        assert!(!reaches(&world, "DELETE", "").await, "the copy cannot be removed");
        let record = world.record().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Abort, State::Failed));
        assert_eq!(world.act("abort").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Aborted);
        world.synced().await;
        assert!(reaches(&world, "DELETE", "").await);
        assert_eq!(world.record().await.unwrap().state, State::Aborted);
        assert!(world.centre().hosts[&TWO].copy.is_none());
    })
    .await;
}
