// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The first move of a zone that runs today, on a simulated headnode with a mock SAPI.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use daemon::command::{Call, CommandError, Output, Program, Run};
use mocks::sapi;
use serde_json::{Map, Value};
use simnode::in_process::InProcess;
use simnode::{CreateOptions, Verbs, Wait, sample};

use super::*;

/// What the zone has today, and where it is after the move.
fn files(piece: Piece) -> &'static [(&'static str, &'static str)] {
    match piece {
        Piece::Migration => &[
            ("var/db/migration-service/store.redb", "migration-service/store.redb"),
            ("var/db/migration-service/authority.json", "migration-service/authority.json"),
            ("root/.sdc-migrate/identity.json", "migration-service/operator/identity.json"),
        ],
        Piece::Volapi => &[
            ("var/db/volapi/volapi.redb", "volapi/volapi.redb"),
            ("opt/smartdc/volapi/etc/trust/key.pem", "volapi/trust/key.pem"),
        ],
        Piece::Feed => &[
            ("var/db/nats/jetstream/meta", "feed/jetstream/meta"),
            ("var/db/nats/accounts.conf", "feed/accounts.conf"),
        ],
    }
}

/// A headnode's commands; after so many, each fails.
struct Headnode {
    node: simnode::Node,
    left: AtomicUsize,
}

impl Headnode {
    fn vm(&self, uuid: &str) -> Option<Value> {
        let zone = self.node.zone(uuid).ok()?;
        let config = self.node.zone_config(uuid).ok()?;
        let datasets: Vec<&str> = config.all("dataset").filter_map(|it| it.get("name")).collect();
        let held = format!("zones/{uuid}@indestructible");
        let protected = self.node.datasets().ok()?.get(&held).is_some();
        Some(json!({
            "uuid": uuid, "state": if zone.state.is_active() { "running" } else { "stopped" },
            "datasets": datasets, "indestructible_zoneroot": protected,
        }))
    }

    async fn vmadm(&self, call: &Call) -> Result<String, String> {
        let verbs = Verbs::new(&self.node, Wait::none());
        let vm = call.args[1].as_str();
        let done = match call.args[0].as_str() {
            "get" => {
                return self
                    .vm(vm)
                    .map(|vm| vm.to_string())
                    .ok_or("No such zone configured".to_owned());
            }
            "update" => {
                let changes: Map<String, Value> = serde_json::from_slice(&call.input).unwrap();
                verbs.update(vm, &changes).await
            }
            "start" => verbs.boot(vm).await,
            "stop" => verbs.halt(vm, 0).await,
            other => panic!("vmadm {other}"),
        };
        done.map(|()| String::new()).map_err(|error| error.to_string())
    }
}

impl Commands for Headnode {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let (program, writes) =
                (call.program, !["get", "list"].contains(&call.args[0].as_str()));
            if writes
                && self
                    .left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                    .is_err()
            {
                let error = Arc::new(std::io::Error::other("killed"));
                return Err(CommandError::Io { program, error });
            }
            if program != Program::Vmadm {
                return InProcess::new(&self.node).run(call).await;
            }
            let (status, out, err) = match self.vmadm(&call).await {
                Ok(text) => (0, text, String::new()),
                Err(text) => (1, String::new(), text),
            };
            Ok(Output { status, stdout: out.into_bytes(), stderr: err.into_bytes() })
        })
    }
}

/// A zone of migration-service as it is today, and its service in SAPI.
struct World {
    _dir: tempfile::TempDir,
    head: Headnode,
    sapi: sapi::Store,
    _server: sapi::Server,
    piece: Piece,
    args: ZoneArgs,
    zone: String,
    image: String,
    service: String,
}

impl World {
    async fn new() -> World {
        World::of(Piece::Migration).await
    }

    async fn of(piece: Piece) -> World {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { vms: 0, ..CreateOptions::new(dir.path().join("cn")) };
        let node = simnode::Node::create(&options).unwrap();
        let mut vm = sample::fresh("joyent", Some(5)).unwrap();
        vm.remove("delegate_dataset");
        let image = vm["image_uuid"].as_str().unwrap().to_owned();
        let zone = Verbs::new(&node, Wait::none()).create(&vm).await.unwrap();
        for (path, _) in files(piece) {
            let file = node.path(&format!("/zones/{zone}/root/{path}"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, path).unwrap();
        }
        let store = sapi::Store::default();
        let server =
            sapi::Server::with_store("127.0.0.1:0".parse().unwrap(), store.clone()).await.unwrap();
        let application = store.application("sdc", json!({}));
        let service = store.service(&application, piece.service(), "vm");
        let of = |value: Value| value.as_object().cloned().unwrap();
        store.put(of(json!({
            "uuid": service, "application_uuid": application, "params": {},
            "metadata": { "HUB_PROGRAM": piece.program() },
        })));
        store.put(of(
            json!({ "uuid": zone, "service_uuid": service, "params": {}, "metadata": {} }),
        ));
        let args = ZoneArgs { sapi: Some(server.url()), yes: true, ..ZoneArgs::default() };
        let head = Headnode { node, left: AtomicUsize::new(usize::MAX) };
        World { _dir: dir, head, sapi: store, _server: server, piece, args, zone, image, service }
    }

    async fn setup(&self) -> anyhow::Result<ExitCode> {
        setup(self.piece, &self.args, &self.head, &self.head.node.root()).await
    }

    fn metadata(&self, key: &str) -> String {
        text(&self.sapi.get(&self.zone).unwrap(), "metadata", key).to_owned()
    }

    /// What is in the delegated dataset.
    fn kept(&self, path: &str) -> Option<String> {
        let node = &self.head.node;
        let bytes =
            node.file(&node.datasets().unwrap(), &format!("zones/{}/data", self.zone), path)?;
        String::from_utf8(bytes).ok()
    }

    async fn reprovision(&self) -> Result<(), simnode::NodeError> {
        Verbs::new(&self.head.node, Wait::none()).reprovision(&self.zone, &self.image).await
    }

    /// All is set up, and a reprovision loses nothing.
    async fn is_safe(&self) {
        assert_eq!(self.setup().await.unwrap(), ExitCode::SUCCESS);
        assert!(!self.metadata(IN_USE).is_empty() && self.metadata(MOVING).is_empty());
        let service = self.sapi.get(&self.service).unwrap();
        assert_eq!(service["params"]["delegate_dataset"], true);
        self.reprovision().await.unwrap();
        for (path, to) in files(self.piece) {
            assert_eq!(self.kept(to).as_deref(), Some(*path));
            let old = self.head.node.path(&format!("/zones/{}/root/{path}", self.zone));
            assert!(!old.exists(), "the root is not new");
        }
        let vm = self.head.vm(&self.zone).unwrap();
        assert_eq!(vm["datasets"], json!([format!("zones/{}/data", self.zone)]));
        assert_eq!(vm["state"], "running");
    }
}

#[tokio::test] // Z3
async fn without_the_move_a_reprovision_destroys_the_records_and_the_authority() {
    let world = World::new().await;
    world.reprovision().await.unwrap();
    for (path, _) in files(world.piece) {
        assert!(
            !world.head.node.path(&format!("/zones/{}/root/{path}", world.zone)).exists(),
            "{path}"
        );
    }
}

#[tokio::test] // Z5
async fn the_first_move_brings_everything_to_the_dataset_that_stays() {
    let world = World::new().await;
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    // The running zone uses what was moved: nothing is written to the old place any more.
    let old = world.head.node.path(&format!("/zones/{}/root/var/db/migration-service", world.zone));
    assert_eq!(std::fs::read_link(old).unwrap(), Path::new("/data/migration-service"));
    let since = world.metadata(IN_USE);
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    assert_eq!(world.metadata(IN_USE), since, "a second run changes nothing");
    world.is_safe().await;
    world.is_safe().await;
}

#[tokio::test] // Z7
async fn a_move_that_is_killed_anywhere_goes_on_and_is_not_reprovisioned_between() {
    for commands in 0.. {
        let world = World::new().await;
        world.head.left.store(commands, Ordering::SeqCst);
        let done = world.setup().await;
        world.head.left.store(usize::MAX, Ordering::SeqCst);
        if done.is_ok() {
            assert!(commands > 6, "{commands} commands");
            break;
        }
        if (1..).contains(&commands) {
            let refused = world.reprovision().await.unwrap_err().to_string();
            assert!(refused.contains("indestructible_zoneroot"), "after {commands}: {refused}");
        }
        world.is_safe().await;
    }
}

#[tokio::test] // Z8
async fn what_is_not_ours_stays_as_it_is() {
    let world = World::new().await;
    let object = |value: Value| value.as_object().cloned().unwrap();
    let before = world.head.vm(&world.zone);
    world.sapi.put(object(
        json!({ "uuid": world.service, "metadata": { "SERVICE_NAME": "hub-migration" } }),
    ));
    let refused = world.setup().await.unwrap_err().to_string();
    assert!(refused.contains("not ours"), "{refused}");
    assert_eq!(world.head.vm(&world.zone), before);
    world.sapi.put(object(
        json!({ "uuid": world.service, "metadata": { "HUB_PROGRAM": "migration-service" } }),
    ));
    // A dataset of somebody else is not written to.
    let data = format!("zones/{}/data", world.zone);
    world.head.node.zfs(|all| all.create(&data)).unwrap();
    let refused = world.setup().await.unwrap_err().to_string();
    assert!(refused.contains("dataset") && refused.contains("already"), "{refused}");
    assert_eq!(world.head.vm(&world.zone), before);
    world.head.node.zfs(|all| all.destroy(&data, false)).unwrap();
    // What an operator protects is not unprotected.
    let verbs = Verbs::new(&world.head.node, Wait::none());
    verbs.update(&world.zone, &object(json!({ "indestructible_zoneroot": true }))).await.unwrap();
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    assert_eq!(world.head.vm(&world.zone).unwrap()["indestructible_zoneroot"], true);
    verbs.update(&world.zone, &object(json!({ "indestructible_zoneroot": false }))).await.unwrap();
    world.is_safe().await;
}

#[tokio::test] // Z8
async fn a_link_that_leads_out_of_the_zone_is_not_followed() {
    let world = World::new().await;
    let root = world.head.node.path(&format!("/zones/{}/root", world.zone));
    std::fs::rename(root.join("var/db"), world.head.node.path("/elsewhere")).unwrap();
    std::os::unix::fs::symlink(world.head.node.path("/elsewhere"), root.join("var/db")).unwrap();
    let refused = world.setup().await.unwrap_err().to_string();
    assert!(refused.contains("leads out of the zone"), "{refused}");
}

#[tokio::test] // Z9
async fn a_dry_run_does_nothing_and_a_new_service_needs_an_image() {
    let world = World::new().await;
    let dry = ZoneArgs { dry_run: true, ..world.args.clone() };
    world.head.left.store(0, Ordering::SeqCst);
    let root = world.head.node.root();
    let run = async |piece, args: &ZoneArgs| setup(piece, args, &world.head, &root).await;
    let left = run(Piece::Migration, &dry).await.unwrap();
    assert_eq!(left, ExitCode::FAILURE, "something is left");
    assert!(world.metadata(MOVING).is_empty());
    let error = format!("{:#}", run(Piece::Feed, &world.args).await.unwrap_err());
    assert!(error.contains("no service hub-feed"), "{error}");
    assert!(error.contains("hub setup feed --image"), "{error}");
}

#[tokio::test] // Z5
async fn each_service_is_moved_whole() {
    for piece in [Piece::Volapi, Piece::Feed] {
        let world = World::of(piece).await;
        assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
        world.is_safe().await;
    }
}

#[tokio::test] // Z15
async fn where_there_is_no_service_one_is_made_with_a_zone_that_keeps_its_records() {
    for piece in [Piece::Volapi, Piece::Migration, Piece::Feed] {
        let mut world = World::of(piece).await;
        // Nothing of ours but the application, and the service from which zones have their user-script.
        let known = world.sapi.all();
        let application = known.iter().find(|it| it.contains_key("owner_uuid")).unwrap();
        let application = application["uuid"].as_str().unwrap().to_owned();
        let store = sapi::Store::default();
        let of = |value: Value| value.as_object().cloned().unwrap();
        store.put(of(json!({ "uuid": application, "name": "sdc", "owner_uuid": ADMIN,
            "params": { "owner_uuid": ADMIN }, "metadata": {} })));
        let vmapi = store.service(&application, "vmapi", "vm");
        store.put(of(json!({ "uuid": vmapi, "metadata": { "user-script": "#!/bin/bash" } })));
        let any = || "127.0.0.1:0".parse().unwrap();
        let server = sapi::Server::with_store(any(), store.clone()).await.unwrap();
        let papi = mocks::papi::Server::start(any()).await.unwrap();
        for name in ["sdc_1024", "sdc_4096"] {
            papi.store().put(of(json!({ "uuid": uuid_of(name), "name": name, "active": true })));
        }
        let (node, image) = (world.head.node.clone(), world.image.clone());
        let made = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&made);
        store.set_hands(Arc::new(move |params| {
            let (node, image, seen) = (node.clone(), image.clone(), Arc::clone(&seen));
            Box::pin(async move {
                assert_eq!(params["server_uuid"], node.cn_uuid(), "it is placed here");
                assert_eq!(params["image_uuid"], json!(image));
                let mut vm = sample::fresh("joyent", Some(7)).unwrap();
                for key in ["uuid", "alias", "delegate_dataset", "image_uuid"] {
                    vm.insert(key.to_owned(), params[key].clone());
                }
                let uuid = Verbs::new(&node, Wait::none()).create(&vm).await;
                seen.lock().unwrap().push(uuid.map_err(|error| error.to_string())?);
                Ok(())
            })
        }));
        world.args = ZoneArgs {
            sapi: Some(server.url()),
            papi: Some(papi.url()),
            image: Some(world.image.clone()),
            ..world.args
        };
        assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
        assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
        let zones = made.lock().unwrap().clone();
        let [zone] = &zones[..] else { panic!("one zone") };
        let find = |name: &str| {
            let all = store.all();
            all.into_iter().find(|it| it.get("name") == Some(&json!(name))).unwrap()
        };
        world.zone.clone_from(zone);
        world.service = find(piece.service())["uuid"].as_str().unwrap().to_owned();
        (world.sapi, world._server) = (store.clone(), server);
        let vm = world.head.vm(zone).unwrap();
        assert_eq!(vm["datasets"], json!([format!("zones/{zone}/data")]));
        assert!(world.metadata(IN_USE).is_empty(), "it has no records yet");
        // Its service writes its records in its dataset, which the zone mounts at /data.
        let node = &world.head.node;
        let dataset = node.directory(&format!("zones/{zone}/data")).unwrap();
        for top in [dataset, node.path(&format!("/zones/{zone}/root/data"))] {
            let file = top.join(piece.records());
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "records").unwrap();
        }
        assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
        assert!(!world.metadata(IN_USE).is_empty());
        world.reprovision().await.unwrap();
        assert_eq!(world.kept(piece.records()).as_deref(), Some("records"));
    }
}

#[tokio::test] // Z15
async fn a_zone_that_could_not_be_made_is_said() {
    let world = World::new().await;
    let object = |value: Value| value.as_object().cloned().unwrap();
    let service = world.sapi.get(&world.service).unwrap();
    let store = sapi::Store::default();
    store.put(service);
    store.set_hands(Arc::new(|_| Box::pin(async { Err("no such image".to_owned()) })));
    store.put(object(json!({ "uuid": world.service, "params": { "delegate_dataset": true } })));
    let server =
        sapi::Server::with_store("127.0.0.1:0".parse().unwrap(), store.clone()).await.unwrap();
    let args = ZoneArgs { sapi: Some(server.url()), ..world.args.clone() };
    let root = world.head.node.root();
    let failed = setup(world.piece, &args, &world.head, &root).await.unwrap_err();
    let failed = format!("{failed:#}");
    assert!(failed.contains("did not make the instance"), "{failed}");
    assert!(failed.contains("no such image"), "{failed}");
}

const ADMIN: &str = "00000000-0000-4000-8000-0000000000ad";

fn uuid_of(name: &str) -> String {
    format!("00000000-0000-4000-8000-00000000{}", &name[4..])
}
