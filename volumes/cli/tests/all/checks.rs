// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `check`, and that what it proposes repairs what it found.

use pretty_assertions::assert_eq;
use serde_json::json;

use crate::world::{CN, DATA, LOGS, OWNER, USER, World, run, zone};

/// Runs a proposed command of `sdc-volapi` in a shell.
async fn repair(world: &World, command: &str) {
    let line = command.replacen("sdc-volapi", env!("CARGO_BIN_EXE_sdc-volapi"), 1);
    let done = run("/bin/sh", &["-c", &format!("{line} -f --url {}", world.volapi)]).await;
    assert_eq!(done.code, Some(0), "{command}: {}{}", done.stdout, done.stderr);
}

#[tokio::test] // V84
async fn what_check_proposes_repairs_what_it_found() {
    let world = World::start().await;
    let done = world.voladm(&["check"]).await;
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "3 volumes: everything fits together\n")
    );
    assert_eq!(world.voladm(&["check", "-p"]).await.stdout, "");

    world.vm(json!({"uuid": USER, "state": "destroyed", "owner_uuid": OWNER}));
    let orphan = "55555555-5555-4555-9555-555555555555";
    world.vm(json!({"uuid": orphan, "state": "running", "brand": "joyent", "owner_uuid": OWNER,
        "alias": "nfs-shared-volume-x", "server_uuid": CN,
        "internal_metadata": {"sdc:system_role": "nfsvolumestorage"}}));
    let double = "66666666-6666-4666-8666-666666666666";
    world.volume(double, OWNER, "logs", &[]).await;
    world.vm(
        json!({"uuid": zone(DATA), "state": "destroyed", "brand": "joyent", "owner_uuid": OWNER}),
    );
    world
        .reserve(json!({"uuid": "77777777-7777-4777-8777-777777777777", "owner_uuid": OWNER,
            "volume_name": "logs", "vm_uuid": CN, "job_uuid": CN, "create_timestamp": 1000}))
        .await;

    let done = world.voladm(&["check", "-p", "-o", "kind,what"]).await;
    let want = [
        format!("orphan:{orphan}"),
        format!("no storage VM:{DATA}"),
        format!("double name:{double}"),
        format!("dead reference:{USER}"),
        "old reservation:77777777-7777-4777-8777-777777777777".to_owned(),
    ];
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), want);

    let found = world.voladm(&["check", "-j", "-o", "repair"]).await;
    let found: Vec<serde_json::Value> = serde_json::from_str(&found.stdout).unwrap();
    let repairs: Vec<&str> = found.iter().filter_map(|it| it["repair"].as_str()).collect();
    assert_eq!(repairs[0], format!("sdc-vmapi /vms/{orphan} -X DELETE"));
    assert_eq!(repairs[1], format!("sdc-voladm delete-volume-zone --owner {OWNER} {DATA}"));
    // A rename takes a ticket, which the mock CNAPI gives and keeps.
    for command in &repairs[2..] {
        repair(&world, command).await;
    }
    let done = world.voladm(&["delete-volume-zone", "--owner", OWNER, DATA, "-y"]).await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    world.vm(json!({"uuid": orphan, "state": "destroyed"}));
    let done = world.voladm(&["check"]).await;
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "3 volumes: everything fits together\n")
    );
    let renamed = world.service.shared.records.volume(double, None).await.unwrap().unwrap();
    assert_eq!(renamed.value.name(), "logs-66666666");
    assert!(world.service.shared.records.volume(LOGS, None).await.unwrap().is_some());
}

#[tokio::test] // V84
async fn a_volume_that_cannot_be_used_is_neither_ready_nor_in_order() {
    let world = World::start().await;
    let set = |volume: &str, state: &str| {
        let mut vm = world.storage_vm(volume);
        vm.insert("state".to_owned(), json!(state));
        world.vm(vm.into());
    };
    let list = ["list-volume-zones", "-p", "-o", "name,state,why", "-s", "volume"];
    set(LOGS, "stopped");
    let done = world.voladm(&list).await;
    let rows: Vec<&str> = done.stdout.lines().collect();
    let why = format!("its storage VM {} is stopped", zone(LOGS));
    assert_eq!(rows, ["data:ready:", &format!("logs:degraded:{why}"), "data:ready:"]);
    let check = ["check", "-p", "-o", "kind,what,detail,repair"];
    let found = world.voladm(&check).await;
    let repair = format!("sdc-voladm restart-volume-zone --force {LOGS}");
    let row = format!("degraded:{LOGS}:volume logs cannot be used\\: {why}:{repair}\n");
    assert_eq!((found.code, found.stdout), (Some(1), row), "{}", found.stderr);
    // The command that it proposes ends it.
    let mut args: Vec<&str> = repair.split(' ').skip(1).collect();
    args.push("-y");
    assert_eq!(world.voladm(&args).await.code, Some(0));
    assert_eq!(world.voladm(&check).await.code, Some(0));
    // A failed one whose storage VM is there is found too.
    let kept = world.service.shared.records.volume(LOGS, None).await.unwrap().unwrap();
    let mut failed = kept.value.clone();
    failed.set_state(volumes_core::volume::State::Failed);
    world
        .service
        .shared
        .records
        .volumes
        .put(LOGS, store::Expect::Etag(kept.etag), &failed)
        .await
        .unwrap();
    set(LOGS, "failed");
    let found = world.voladm(&check).await;
    let want = format!(
        "failed:{LOGS}:volume logs cannot be used\\: its storage VM {} is failed",
        zone(LOGS)
    );
    assert!(found.stdout.starts_with(&want), "{}", found.stdout);
    assert!(found.stdout.contains(&format!("delete-volume-zone --owner {OWNER} {LOGS}")));
}

#[tokio::test] // V84
async fn a_service_that_does_not_answer_is_no_clean_bill() {
    let world = World::start().await;
    let broken = mocks::faults::Action::Status { status: 500, body: None, retry_after: None };
    world.cnapi.add_fault(mocks::faults::Rule::any(broken));
    let done = world.voladm(&["check"]).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""));
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
}
