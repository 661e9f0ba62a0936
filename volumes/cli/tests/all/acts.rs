// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Restarts, updates and deletes.

use pretty_assertions::assert_eq;
use serde_json::json;
use volumes_core::volume::State;

use crate::world::{DATA, IMAGE, LOGS, OTHER, OWNER, THEIRS, USER, World, object, zone};

#[tokio::test] // V82
async fn a_volume_that_is_used_is_left_alone_and_its_users_are_named() {
    let world = World::start().await;
    for args in [
        &["restart-volume-zone", "--owner", OWNER, "-y"][..],
        &["restart-volume-zone", DATA, "-y"],
        &["delete-volume-zone", DATA, "-y"],
    ] {
        let done = world.voladm(args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{args:?}");
        let want = format!(
            "1 VM uses data ({DATA}):\n  {USER} web01 running '/srv/my data' ro\n\
             sdc-voladm: nothing was done: there are users; --force does it all the same\n"
        );
        assert_eq!(done.stderr, want, "{args:?}");
    }
    assert_eq!(world.orders(), []);
    // One that is no more does not count.
    world.vm(json!({"uuid": USER, "state": "destroyed", "alias": "web01", "owner_uuid": OWNER}));
    let done = world.voladm(&["restart-volume-zone", "--owner", OWNER, "-y"]).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let line = |name: &str, uuid: &str| format!("{name} ({uuid}): its storage VM was rebooted\n");
    assert_eq!(done.stdout, line("data", DATA) + &line("logs", LOGS));
    let order = |uuid| (format!("/vms/{}?action=reboot", zone(uuid)), json!({}));
    assert_eq!(world.orders(), [order(DATA), order(LOGS)]);
}

#[tokio::test] // V90
async fn a_storage_vm_that_is_stopped_is_started_and_what_came_of_it_is_said() {
    let world = World::start().await;
    let stop = |volume: &str| {
        let mut vm = world.storage_vm(volume);
        vm.insert("state".to_owned(), json!("stopped"));
        world.vm(vm.into());
    };
    stop(DATA);
    // Its user gains by the start.
    let done = world.voladm(&["restart-volume-zone", DATA, "-y"]).await;
    let want = format!("data ({DATA}): its storage VM was started\n");
    assert_eq!((done.code, done.stdout, done.stderr), (Some(0), want, String::new()));
    assert_eq!(world.storage_vm(DATA)["state"], "running");
    // With --no-wait the command says that it goes on.
    stop(LOGS);
    let done = world.voladm(&["restart-volume-zone", LOGS, "-y", "--no-wait"]).await;
    let want = format!("logs ({LOGS}): its storage VM starts (job {})\n", world.job());
    assert_eq!((done.code, done.stdout), (Some(0), want));
}

#[tokio::test] // V90
async fn a_job_that_fails_is_a_failure_and_says_why() {
    let world = World::start().await;
    // Stopped between the look and the job.
    let jobs = world.workflow.store().clone();
    let refuses: mocks::vmapi::Hands =
        std::sync::Arc::new(|_| Box::pin(async { Err("the VM is not running".to_owned()) }));
    world.vmapi.store().run_jobs(jobs, refuses);
    let done = world.voladm(&["restart-volume-zone", LOGS, "-y"]).await;
    let want =
        format!("sdc-voladm: logs ({LOGS}): job {} failed: the VM is not running\n", world.job());
    assert_eq!((done.code, done.stdout, done.stderr), (Some(1), String::new(), want));
    // What is in neither state is not touched.
    for (state, said) in
        [("stopping", "is stopping; wait"), ("destroyed", "is gone; sdc-voladm check")]
    {
        let mut vm = world.storage_vm(LOGS);
        vm.insert("state".to_owned(), json!(state));
        world.vm(vm.into());
        let done = world.voladm(&["restart-volume-zone", LOGS, "-y"]).await;
        assert!(done.code == Some(1) && done.stderr.contains(said), "{}", done.stderr);
    }
    assert_eq!(world.orders().len(), 1);
}

#[tokio::test] // V82
async fn owner_and_volume_are_checked_against_each_other() {
    let world = World::start().await;
    for (args, said) in [
        (&["data"][..], format!("\"data\" fits 2 volumes: {DATA} data, {THEIRS} data")),
        (&["logs", "--owner", OTHER], format!("logs ({LOGS}) belongs to {OWNER}, not to {OTHER}")),
        (&[LOGS, "--owner", OTHER], format!("logs ({LOGS}) belongs to {OWNER}, not to {OTHER}")),
        (&["none", "--owner", OTHER], "no volume has the name \"none\"".to_owned()),
        (&["--owner", USER], format!("{USER} has no volume")),
        (&["--owner", "bob"], "\"bob\" is not the uuid of an owner".to_owned()),
    ] {
        let done = world.voladm(&[&["restart-volume-zone", "-y"], args].concat()).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(done.stderr.contains(&said), "{args:?}: {}", done.stderr);
    }
    assert_eq!(world.orders(), []);
    for args in [&["data", "--owner", OTHER][..], &["3333"], &["--owner", OTHER]] {
        let done = world.voladm(&[&["restart-volume-zone", "-y"], args].concat()).await;
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{args:?}");
        assert_eq!(world.orders().pop().unwrap().0, format!("/vms/{}?action=reboot", zone(THEIRS)));
    }
}

#[tokio::test] // V83
async fn without_a_terminal_nothing_is_done_until_it_is_confirmed() {
    let world = World::start().await;
    for verb in ["restart-volume-zone", "delete-volume-zone"] {
        let done = world.voladm(&[verb, "logs"]).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""));
        assert!(done.stderr.contains(&format!("logs ({LOGS})")), "{}", done.stderr);
        assert!(done.stderr.trim_end().ends_with("confirm it with -y"), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1);
    }
    assert_eq!(world.orders(), []);
    assert!(world.service.shared.records.volume(LOGS, None).await.unwrap().is_some());
}

#[tokio::test] // V82
async fn a_delete_goes_through_volapi() {
    let world = World::start().await;
    // VMAPI destroys the VM; until then the volume is being deleted.
    let done = world.voladm(&["delete-volume-zone", "logs", "-y"]).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{}", done.stdout);
    let state = async |uuid| {
        world.service.shared.records.volume(uuid, None).await.unwrap().map(|it| it.value.state())
    };
    assert_eq!(state(LOGS).await, Some(State::Deleting));
    let done = world.voladm(&["delete-volume-zone", DATA, "-y", "--force"]).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert_eq!(state(DATA).await, Some(State::Deleting));
    // A refusal of one is told, and does not keep the others.
    world.volume("44444444-4444-4444-8444-444444444444", OTHER, "more", &[]).await;
    let refusal = mocks::faults::Action::Status { status: 500, body: None, retry_after: None };
    let path = format!("/vms/{}", zone(THEIRS));
    world.vmapi.add_fault(mocks::faults::Rule::new("DELETE", &path, refusal));
    let done = world.voladm(&["delete-volume-zone", "--owner", OTHER, "-y"]).await;
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.starts_with("more (44444444"), "{}", done.stdout);
    assert!(done.stderr.starts_with(&format!("sdc-voladm: data ({THEIRS}): ")), "{}", done.stderr);
}

#[tokio::test] // V85
async fn an_update_takes_the_newest_image_of_the_same_name_and_owner() {
    let world = World::start().await;
    let image = |uuid: &str, name: &str, owner: &str, at: &str, state: &str| {
        world.imgapi.store().put(object(json!({"uuid": uuid, "name": name, "version": "1.0",
            "state": state, "owner": owner, "published_at": format!("{at}T00:00:00Z")})));
    };
    let [older, broken, foreign, other, new, none] =
        [1, 2, 3, 4, 5, 6].map(|n| format!("1a9e000{n}-0000-4000-8000-000000000000"));
    image(IMAGE, "nfsserver", OTHER, "2026-01-02", "active");
    image(&older, "nfsserver", OTHER, "2026-01-01", "active");
    image(&broken, "nfsserver", OTHER, "2026-01-09", "disabled");
    image(&foreign, "nfsserver", OWNER, "2026-01-09", "active");
    image(&other, "base", OTHER, "2026-01-09", "active");
    let done = world.voladm(&["update-volume-zone", "logs", "-y"]).await;
    let has = format!("logs ({LOGS}): it has nfsserver 1.0 ({IMAGE}) already\nNothing to do.\n");
    assert_eq!((done.code, done.stdout, world.orders()), (Some(0), has, vec![]), "{}", done.stderr);
    image(&new, "nfsserver", OTHER, "2026-01-03", "active");
    // IMGAPI remembers what it answered.
    world.imgapi.store().advance(std::time::Duration::from_secs(301));
    for (args, image) in
        [(&[][..], &new), (&["--image", &other], &other), (&["--image", "nfsserver@1.0"], &new)]
    {
        let done = world.voladm(&[&["update-volume-zone", "logs", "-y"], args].concat()).await;
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let want =
            (format!("/vms/{}?action=reprovision", zone(LOGS)), json!({"image_uuid": image}));
        assert_eq!(world.orders().pop().unwrap(), want);
    }
    for (image, said) in [
        (&broken, format!("the image {broken} is disabled")),
        (&none, format!("image {none} not found")),
    ] {
        let done = world.voladm(&["update-volume-zone", "logs", "-y", "--image", image]).await;
        assert!(done.code == Some(1) && done.stderr.contains(&said), "{}", done.stderr);
    }
    let done =
        world.voladm(&["update-volume-zone", "logs", "-y", "--image", "nfsserver@2.0"]).await;
    let said = "is called \"nfsserver@2.0\"";
    assert!(done.code == Some(2) && done.stderr.contains(said), "{}", done.stderr);
    assert_eq!(world.orders().len(), 3);
}
