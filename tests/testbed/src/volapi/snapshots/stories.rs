// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! What clients see of snapshots and roll-backs.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use daemon::{Shutdown, Tasks};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use store::Expect;
use tokio::sync::mpsc;
use volapi::http::router;
use volapi::records::NetworkChange;
use volapi::updater::{self, Feed, News, Updater};
use volumes_core::networks::Way;
use volumes_core::requests;
use volumes_core::snapshot::Stage;
use volumes_core::volume::State;

use super::world::{World, params};
use crate::volapi::asked::OWNER;
use crate::volapi::crash::VOLUME;
use crate::volapi::fuse::PEER_AWAY;
use crate::volapi::running::start;

const STRANGER: &str = "99999999-9999-4999-8999-999999999999";

/// One exchange with the routes of a service.
async fn ask(world: &World, method: Method, path: &str, body: Value) -> (u16, Value) {
    let tasks = Tasks::new(Shutdown::new());
    let routes = router(Arc::clone(&world.service), tasks, "volapi");
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.header("user-agent", "curl/8.1 (ops)");
    let request = request.body(Body::from(body.to_string())).unwrap();
    let (head, body) = daemon::http::call(routes, request).await.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    (head.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
}

fn at(rest: &str) -> String {
    format!("/volumes/{VOLUME}/{rest}")
}

#[tokio::test(start_paused = true)] // V131
async fn snapshots_on_the_wire() {
    let world = World::new().await;
    world.cn().write(&world.vm, "first").unwrap();
    let (status, volume) =
        ask(&world, Method::POST, &at("snapshot"), json!({"name": "first"})).await;
    assert_eq!((status, &volume["uuid"]), (201, &json!(VOLUME)));
    let first = volume["snapshots"][0].clone();
    assert_eq!((&first["name"], &first["state"]), (&json!("first"), &json!("created")));
    let time = first["create_timestamp"].as_str().unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{time}");
    // Without a name it gets one, and owners are checked.
    let (status, volume) = ask(&world, Method::POST, &at("snapshot"), json!({"name": ""})).await;
    let second = volume["snapshots"][1].clone();
    assert_eq!((status, &second["name"]), (201, &second["uuid"]));
    let (status, error) =
        ask(&world, Method::POST, &at("snapshot"), json!({"name": "first"})).await;
    assert_eq!((status, &error["code"]), (409, &json!("VolumeSnapshotAlreadyExists")));
    let (status, all) = ask(&world, Method::GET, &at("snapshots"), Value::Null).await;
    assert_eq!((status, &all), (200, &json!([first, second])));
    let (status, some) = ask(&world, Method::GET, &at("snapshots?name=first"), Value::Null).await;
    assert_eq!((status, &some), (200, &json!([first])));
    let (status, one) = ask(&world, Method::GET, &at("snapshots/first"), Value::Null).await;
    assert_eq!((status, &one), (200, &first));
    let (status, error) = ask(&world, Method::GET, &at("snapshots/none"), Value::Null).await;
    assert_eq!((status, &error["code"]), (404, &json!("VolumeSnapshotNotFound")));
    let (status, _) = ask(&world, Method::PUT, &at("snapshots/first"), Value::Null).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED.as_u16());
    // By uuid, which clients call as they call the volume's.
    world.cn().write(&world.vm, "later").unwrap();
    let to = json!({"uuid": first["uuid"]});
    let (status, volume) = ask(&world, Method::POST, &at("rollbacktosnapshot"), to).await;
    assert_eq!((status, &volume["state"]), (200, &json!("rolling_back")));
    world.pass().await;
    assert!(world.cn().has(&world.vm, "first").unwrap());
    let (_, volume) = ask(&world, Method::GET, &format!("/volumes/{VOLUME}"), Value::Null).await;
    assert_eq!((&volume["state"], &volume["snapshots"]), (&json!("ready"), &json!([first])));
    let (status, job) = ask(&world, Method::DELETE, &at("snapshots/first"), Value::Null).await;
    assert_eq!((status, &job["volume_uuid"]), (200, &json!(VOLUME)));
    assert!(job["job_uuid"].as_str().unwrap().parse::<uuid::Uuid>().is_ok(), "{job}");
    let (status, _) = ask(&world, Method::GET, &at("snapshots/first"), Value::Null).await;
    assert_eq!((status, world.cn().snapshots(&world.vm).unwrap().len()), (404, 0));
    let (_, volume) = ask(&world, Method::GET, &format!("/volumes/{VOLUME}"), Value::Null).await;
    assert!(volume.get("snapshots").is_none());
}

#[tokio::test(start_paused = true)] // V143
async fn what_has_ended_is_told_with_who_asked() {
    let world = World::new().await;
    for (method, path, body) in [
        (Method::POST, at("snapshot"), json!({"name": "first"})),
        (Method::POST, at("rollbacktosnapshot"), json!({"name": "first"})),
        (Method::DELETE, at("snapshots/first"), Value::Null),
    ] {
        assert!(ask(&world, method, &path, body).await.0 < 300, "{path}");
        world.pass().await;
    }
    let history = async |query: &str| {
        let path = format!("/volumehistory{query}");
        let (status, found) = ask(&world, Method::GET, &path, Value::Null).await;
        assert_eq!(status, 200, "{found}");
        found.as_array().unwrap().clone()
    };
    let all = history("").await;
    let mut told: Vec<&str> = all.iter().map(|it| it["what"].as_str().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(told, ["delete-snapshot", "rollback", "snapshot"]);
    for entry in &all {
        let who = ["by", "program", "outcome", "volume_name", "snapshot_name"].map(|it| &entry[it]);
        assert_eq!(who, ["ops", "curl/8.1", "successful", "name", "first"], "{entry}");
        let [began, ended] = ["began", "ended"].map(|it| entry[it].as_str().unwrap());
        assert!(began <= ended && entry.get("error").is_none(), "{entry}");
    }
    let of = |volume| format!("?volume_uuid={volume}&owner_uuid={OWNER}");
    assert_eq!(history(&of(VOLUME)).await, all);
    assert_eq!(history(&of(STRANGER)).await.len(), 0);
    assert_eq!(history("?since=2999-01-01T00:00:00.000Z").await.len(), 0);
    let (status, _) = ask(&world, Method::GET, "/volumehistory?odd=1", Value::Null).await;
    assert_eq!(status, 409);
}

#[tokio::test(start_paused = true)] // V130
async fn without_the_rfd_there_is_no_such_route() {
    let mut world = World::new().await;
    world.data_centre.cn = None;
    world.service = start(&world.store, &world.data_centre, &world.fuse).await.unwrap();
    for (method, path) in [
        (Method::POST, at("snapshot")),
        (Method::GET, at("snapshots")),
        (Method::GET, at("snapshots/first")),
        (Method::DELETE, at("snapshots/first")),
        (Method::POST, at("rollbacktosnapshot")),
        (Method::GET, "/volumehistory".to_owned()),
    ] {
        let (status, error) = ask(&world, method, &path, json!({"name": "first"})).await;
        assert_eq!((status, &error["code"]), (404, &json!("ResourceNotFound")), "{path}");
        assert_eq!(error["message"], format!("{path} does not exist"));
    }
}

#[tokio::test(start_paused = true)] // V130
async fn another_owner_has_no_such_volume() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    let foreign = format!("owner_uuid={STRANGER}");
    let own = format!("owner_uuid={OWNER}");
    let named = json!({"name": "first", "owner_uuid": STRANGER});
    for (method, path, body) in [
        (Method::POST, at("snapshot"), named.clone()),
        (Method::GET, at(&format!("snapshots?{foreign}")), Value::Null),
        (Method::GET, at(&format!("snapshots/first?{foreign}")), Value::Null),
        (Method::DELETE, at(&format!("snapshots/first?{foreign}")), Value::Null),
        (Method::POST, at("rollbacktosnapshot"), named),
    ] {
        let (status, error) = ask(&world, method, &path, body).await;
        assert_eq!((status, &error["code"]), (404, &json!("VolumeNotFound")), "{path}");
    }
    assert_eq!(world.recorded().await, [("first".to_owned(), Stage::Created)]);
    let (status, _) =
        ask(&world, Method::GET, &at(&format!("snapshots/first?{own}")), Value::Null).await;
    assert_eq!(status, 200);
}

#[tokio::test(start_paused = true)] // V132
async fn a_snapshot_that_finds_no_room_fails_with_the_reason() {
    let world = World::new().await;
    let (root, data) = (format!("zones/{}", world.vm), format!("zones/{}/data", world.vm));
    world.cn().write(&world.vm, &"x".repeat(200_000)).unwrap();
    let zfs = |line: String| world.cn().zfs(&line).unwrap();
    zfs(format!("set refreservation=10000000 {data}"));
    let used: u64 = zfs(format!("get -Hp -o value used {root}")).trim().parse().unwrap();
    zfs(format!("set quota={} {root}", used + 1000));
    let volume = world.create("first").await.unwrap();
    let failed = &volume["snapshots"][0];
    assert_eq!(failed["state"], "failed");
    assert!(failed["reason"].as_str().unwrap().contains("no space left"), "{failed}");
    assert_eq!(world.volume().await.state(), State::Ready);
    assert_eq!(world.roll_back("first").await.unwrap_err().status(), 409);
    zfs(format!("set quota=none {root}"));
    world.create("first").await.unwrap();
    world.check("after it").await;
}

#[tokio::test(start_paused = true)] // V136
async fn a_volume_in_use_is_rolled_back_only_by_force() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    world.cn().write(&world.vm, "later").unwrap();
    let user = "88888888-8888-4888-8888-888888888888";
    let reference = json!({"uuid": VOLUME, "owner_uuid": OWNER, "vm_uuid": user});
    let reference = requests::reference(&params(reference)).unwrap();
    world.service.references.add(&reference).await.unwrap();
    // A user that is gone does not count.
    let gone = json!({"uuid": user, "brand": "lx", "owner_uuid": OWNER, "state": "destroyed"});
    world.data_centre.vms.put(params(gone.clone()));
    let mut running = params(gone);
    running.insert("state".to_owned(), json!("running"));
    world.data_centre.vms.put(running);
    let refused = world.roll_back("first").await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (409, Some("VolumeInUse")));
    assert!(refused.to_string().contains(user), "{refused}");
    assert!(world.cn().has(&world.vm, "later").unwrap());
    assert!(world.cn().runs(&world.vm).unwrap());
    let volume = world.roll_back_with(json!({"name": "first", "force": true})).await.unwrap();
    assert_eq!(volume["state"], "rolling_back");
    world.pass().await;
    assert!(world.cn().has(&world.vm, "first").unwrap());
    assert_eq!(world.volume().await.refs(), [user]);
}

#[tokio::test(start_paused = true)] // V139
async fn a_roll_back_that_cannot_be_done_leaves_the_volume_as_it_is() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    world.cn().write(&world.vm, "later").unwrap();
    // The node does not answer, after VMAPI.
    world.fuse.set(PEER_AWAY, 1);
    let refused = world.roll_back("first").await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (503, Some("ServiceUnavailable")));
    world.fuse.clear();
    // VMAPI refuses to stop the VM: it is being migrated, say.
    let busy =
        json!({"status": 409, "times": 1, "body": {"code": "Migrating", "message": "migrates"}});
    world.data_centre.behave(&params(json!({"vm_order": [busy]})));
    let refused = world.roll_back("first").await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (409, Some("VolumeNotRolledBack")));
    assert!(refused.to_string().contains("migrates"), "{refused}");
    assert_eq!(world.volume().await.state(), State::Ready);
    // Somebody's own snapshot is in the way: found when the VM is stopped, which runs again afterwards.
    let mine = format!("zones/{}/data@mine", world.vm);
    world.cn().zfs(&format!("snapshot {mine}")).unwrap();
    world.roll_back("first").await.unwrap();
    world.pass().await;
    assert!(world.cn().has(&world.vm, "later").unwrap());
    assert!(world.cn().runs(&world.vm).unwrap());
    let volume = world.volume().await;
    assert_eq!(volume.state(), State::Ready);
    assert!(volume.snapshots()[0].reason.as_deref().unwrap().contains("mine"));
    world.cn().zfs(&format!("destroy {mine}")).unwrap();
    world.roll_back("first").await.unwrap();
    world.pass().await;
    assert!(world.cn().has(&world.vm, "first").unwrap());
    assert_eq!(world.volume().await.snapshots()[0].reason, None);
    // The node has lost the snapshot: nothing is stopped for it.
    let uuid = world.volume().await.snapshots()[0].uuid.clone();
    world.cn().zfs(&format!("destroy zones/{}/data@volsnap-{uuid}", world.vm)).unwrap();
    assert_eq!(world.roll_back("first").await.unwrap_err().status(), 409);
    assert_eq!(world.volume().await.state(), State::Ready);
}

#[tokio::test(start_paused = true)] // V137
async fn a_node_that_does_not_answer_makes_the_snapshot_when_it_does() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    // The agent is the second that is asked, after VMAPI.
    world.fuse.set(PEER_AWAY, 1);
    let volume = world.create("second").await.unwrap();
    assert_eq!(volume["snapshots"][1]["state"], "creating");
    let refused = world.roll_back("first").await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (409, Some("InvalidVolumeState")));
    world.pass().await;
    let both = [("first".to_owned(), Stage::Created), ("second".to_owned(), Stage::Created)];
    assert_eq!(world.recorded().await, both);
    world.check("afterwards").await;
}

fn change_of_networks(world: &World) -> NetworkChange {
    NetworkChange {
        way: Way::Attach,
        network_uuid: STRANGER.to_owned(),
        vm_uuid: world.vm.clone(),
        began: daemon::wall::now().as_second(),
        asked: false,
        job_uuid: None,
    }
}

#[tokio::test(start_paused = true)] // V111 V133
async fn a_roll_back_and_a_change_of_networks_refuse_each_other() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    let changes = &world.service.shared.records.network_changes;
    let etag = changes.put(VOLUME, Expect::Absent, &change_of_networks(&world)).await.unwrap();
    let to = json!({"name": "first"});
    let (status, error) = ask(&world, Method::POST, &at("rollbacktosnapshot"), to.clone()).await;
    assert_eq!((status, &error["code"]), (409, &json!("VolumeNetworksChanging")));
    changes.delete(VOLUME, Expect::Etag(etag)).await.unwrap();
    ask(&world, Method::POST, &at("rollbacktosnapshot"), to).await;
    let network = json!({"network_uuid": STRANGER});
    let (status, error) = ask(&world, Method::POST, &at("attachtonetwork"), network).await;
    assert_eq!((status, &error["code"]), (409, &json!("VolumeNotReady")));
}

#[tokio::test(start_paused = true)] // V133
async fn a_roll_back_waits_for_a_change_of_networks_of_the_same_moment() {
    let begun = async |step| {
        let world = World::new().await;
        world.snap("first").await.unwrap();
        world.fuse.set(PEER_AWAY, step);
        let _ = world.roll_back("first").await;
        world.fuse.clear();
        world
    };
    let mut world = begun(0).await;
    // Until VMAPI is away when it is asked to stop the storage VM.
    for step in 1.. {
        if world.volume().await.state() == State::RollingBack && world.cn().runs(&world.vm).unwrap()
        {
            break;
        }
        world = begun(step).await;
    }
    let changes = &world.service.shared.records.network_changes;
    let etag = changes.put(VOLUME, Expect::Absent, &change_of_networks(&world)).await.unwrap();
    for _ in 0..4 {
        world.service.tidy(None).await.unwrap();
    }
    assert!(world.cn().runs(&world.vm).unwrap(), "the storage VM is stopped");
    changes.delete(VOLUME, Expect::Etag(etag)).await.unwrap();
    world.pass().await;
    assert_eq!(world.volume().await.state(), State::Ready);
}

#[tokio::test(start_paused = true)] // V140
async fn snapshots_go_with_the_volume() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    // One is on its way, and the volume is being rolled back.
    world.snap("second").await.unwrap();
    world.roll_back("first").await.unwrap();
    let delete = requests::delete(&params(json!({"uuid": VOLUME}))).unwrap();
    world.service.deletes.delete(&delete).await.unwrap();
    assert!(world.data_centre.is_deleted(&world.vm));
    world.service.tidy(None).await.unwrap();
    assert_eq!(world.volume().await.state(), State::Deleting);
    let refused = world.create("third").await.unwrap_err();
    assert_eq!(refused.code(), Some("InvalidVolumeState"));
    world.record(json!({"state": "destroyed"}));
    world.service.follower.follow(&world.vm, None).await.unwrap();
    world.pass().await;
    assert!(world.service.shared.records.volume(VOLUME, None).await.unwrap().is_none());
    // V143
    let (_, told) = ask(&world, Method::GET, "/volumehistory", Value::Null).await;
    let told: Vec<_> = told.as_array().unwrap().iter().map(|it| it["what"].clone()).collect();
    let went = told.iter().filter(|what| **what == "went-with-volume").count();
    assert!(went == 2 && told.contains(&json!("rollback")), "{told:?}");
}

#[tokio::test(start_paused = true)] // V134
async fn a_storage_vm_that_fails_fails_the_volume_that_is_rolled_back() {
    let world = World::new().await;
    for name in ["first", "second"] {
        world.snap(name).await.unwrap();
    }
    world.roll_back("first").await.unwrap();
    // The node has rolled back, and nobody has heard of it.
    let volume = world.volume().await;
    let all = volume.snapshots();
    let data = format!("zones/{}/data", world.vm);
    world.cn().zfs(&format!("rollback -r {data}@volsnap-{}", all[0].uuid)).unwrap();
    world.record(json!({"state": "failed"}));
    world.service.follower.follow(&world.vm, None).await.unwrap();
    assert_eq!(world.volume().await.state(), State::Failed);
    // V143
    let (_, told) = ask(&world, Method::GET, "/volumehistory", Value::Null).await;
    let rolled = told.as_array().unwrap().iter().find(|it| it["what"] == "rollback");
    let rolled = rolled.map(|it| (&it["outcome"], &it["error"]));
    let failed = (&json!("failed"), &json!("the storage VM failed, or is gone"));
    assert_eq!(rolled, Some(failed), "{told}");
    world.pass().await;
    // The record has what the node has.
    assert_eq!(world.recorded().await, [("first".to_owned(), Stage::Created)]);
    assert_eq!(world.volume().await.state(), State::Failed);
    world.record(json!({"state": "running"}));
    world.service.follower.follow(&world.vm, None).await.unwrap();
    assert_eq!(world.volume().await.state(), State::Ready);
}

/// A feed that says nothing.
struct Silent(mpsc::Receiver<News>);

impl Feed for Silent {
    fn next(&mut self) -> futures_util::future::BoxFuture<'_, News> {
        Box::pin(async {
            match self.0.recv().await {
                Some(heard) => heard,
                None => std::future::pending().await,
            }
        })
    }
}

#[tokio::test(start_paused = true)] // V134
async fn a_roll_back_is_over_seconds_after_the_storage_vm_runs_again() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    world.cn().write(&world.vm, "later").unwrap();
    let (_say, told) = mpsc::channel(1);
    let told = std::sync::Mutex::new(Some(told));
    let updater = Updater {
        service: Arc::clone(&world.service),
        state: Arc::new(updater::State::default()),
        listen: Box::new(move || Box::new(Silent(told.lock().unwrap().take().unwrap()))),
    };
    let running = tokio::spawn(updater.run());
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.roll_back("first").await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.volume().await.state(), State::Ready);
    assert!(world.cn().has(&world.vm, "first").unwrap());
    running.abort();
}
