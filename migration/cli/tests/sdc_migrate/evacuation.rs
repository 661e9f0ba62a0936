// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Evacuations, against a data centre in which a migration takes a few looks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use migration_core::evacuation::{EvacuatedVm, Next, count, starts};
use pretty_assertions::assert_eq;
use sdc_clients::migrations::Evacuation;
use serde_json::{Value, json};

use super::program::{config, run_with, start};
use super::service::{Answer, respond, serve};

const CN: &str = "96c6fbfa-9615-4135-b135-0199b3500ce4";
const HOST: &str = "cn-07";
const OTHER: &str = "6cbd5b1a-34e3-4365-a31f-48bc755e87cf";
const VMS: [&str; 4] = [
    "0aa41ab0-2046-4d53-a82c-b9876136d4f1",
    "1aa41ab0-2046-4d53-a82c-b9876136d4f1",
    "2aa41ab0-2046-4d53-a82c-b9876136d4f1",
    "3aa41ab0-2046-4d53-a82c-b9876136d4f1",
];
/// A core VM, which does not move.
const CORE: &str = VMS[3];

/// What the data centre knows.
#[derive(Default)]
struct Centre {
    /// Phase and state of each migration.
    migrations: BTreeMap<String, (&'static str, &'static str)>,
    reserved: bool,
    /// The service's row of the evacuation.
    evacuation: Option<Value>,
    /// Migrations go on.
    goes: bool,
    /// Every change, in its order.
    log: Vec<String>,
    /// The most migrations at once.
    most: usize,
    /// So many begins find no agent.
    away: usize,
}

impl Centre {
    /// Each look at the migrations moves them on.
    fn step(&mut self) {
        if !self.goes {
            return;
        }
        for (phase, state) in self.migrations.values_mut() {
            (*phase, *state) = match (*phase, *state) {
                ("begin", "running") => ("sync", "running"),
                ("sync", "running") => ("switch", "running"),
                ("switch", "running") => ("switch", "successful"),
                same => same,
            };
        }
    }

    /// What the service does with an evacuation between two looks.
    fn carry_on(&mut self) {
        let Some(row) = &self.evacuation else { return };
        let mut row: Evacuation = serde_json::from_value(row.clone()).unwrap();
        let known = |vm: &&str| {
            let migration = self.migrations.get(*vm).map(|it| migration(vm, *it));
            let migration = migration.map(|it| serde_json::from_value(it).unwrap());
            let refusal = row.tried.get(*vm).filter(|why| !why.is_empty()).cloned();
            let is_here = !self.has_moved(vm);
            (vm.to_string(), EvacuatedVm { is_here, migration, refusal, ..EvacuatedVm::default() })
        };
        let vms: BTreeMap<String, EvacuatedVm> = VMS.iter().map(known).collect();
        let tried = row.tried.keys().cloned().collect();
        let left = Some(count(&vms, CN, &tried).left as u64);
        if row.paused {
            for (vm, _) in
                self.migrations.clone().iter().filter(|(_, it)| **it == ("sync", "running"))
            {
                self.act(vm, "pause");
            }
            return;
        }
        if left == Some(0) && row.left == left {
            self.evacuation = None;
            if !row.was_reserved {
                self.reserve(false);
            }
            return;
        }
        if !row.is_reserved {
            self.reserve(true);
        }
        (row.is_reserved, row.left) = (true, left);
        for (vm, next) in starts(&vms, CN, &tried, 2) {
            match self.act(&vm, if next == Next::Begin { "begin" } else { "sync" }) {
                Answer::Whole(202, _) => drop(row.tried.insert(vm, String::new())),
                Answer::Whole(503, _) => {}
                Answer::Whole(_, why) => {
                    row.tried.insert(vm, why["message"].as_str().unwrap().to_owned());
                }
                _ => unreachable!(),
            }
        }
        self.evacuation = Some(json!(row));
    }

    fn reserve(&mut self, is_reserved: bool) {
        self.reserved = is_reserved;
        self.log.push(format!("reserved {is_reserved}"));
    }

    fn has_moved(&self, vm: &str) -> bool {
        self.migrations.get(vm) == Some(&("switch", "successful"))
    }

    fn act(&mut self, vm: &str, action: &str) -> Answer {
        let refuse = |message: &str| {
            Answer::Whole(412, json!({"code": "PreconditionFailed", "message": message}))
        };
        self.log.push(format!("{action} {}", &vm[..1]));
        match (action, self.migrations.get(vm).copied()) {
            ("begin", _) if self.away > 0 => {
                self.away -= 1;
                let message = "migration-agent does not answer on the source's node";
                let body = json!({"code": "ServiceUnavailableError", "message": message});
                return Answer::Whole(503, body);
            }
            ("begin", _) if vm == CORE => return refuse("Cannot migrate a core instance"),
            ("begin", None) => self.migrations.insert(vm.to_owned(), ("begin", "running")),
            ("sync", Some((_, "paused"))) => {
                self.migrations.insert(vm.to_owned(), ("sync", "running"))
            }
            ("pause", Some(("sync", "running"))) => {
                self.migrations.insert(vm.to_owned(), ("sync", "paused"))
            }
            _ => return refuse("not now"),
        };
        let runs = self.migrations.values().filter(|(_, state)| *state == "running").count();
        self.most = self.most.max(runs);
        Answer::Whole(202, json!({"job_uuid": "J"}))
    }

    fn answer(&mut self, method: &str, path: &str, query: &str, body: &Value) -> Answer {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (method, parts.as_slice()) {
            ("GET", ["vms"]) => {
                let here = VMS.iter().filter(|vm| !self.has_moved(vm));
                let vms = here.map(|vm| json!({"uuid": vm, "state": "running", "alias": format!("vm{}", &vm[..1])}));
                Answer::Whole(200, vms.collect())
            }
            ("GET", ["migrations"]) => {
                self.step();
                self.carry_on();
                let all = self.migrations.iter().map(|(vm, it)| migration(vm, *it));
                Answer::Whole(200, all.collect())
            }
            ("GET", ["evacuations"]) => {
                Answer::Whole(200, self.evacuation.iter().cloned().collect())
            }
            ("GET", ["evacuations", CN]) if self.evacuation.is_some() => {
                Answer::Whole(200, self.evacuation.clone().unwrap())
            }
            ("PUT", ["evacuations", CN]) => {
                let new = json!({"cn_uuid": CN, "began": "2026-01-01T00:00:00.000Z", "by": "ops",
                    "was_reserved": self.reserved, "is_reserved": self.reserved});
                let row = self.evacuation.get_or_insert(new).as_object_mut().unwrap();
                row.extend(body.as_object().unwrap().clone());
                row.remove("tried");
                row.remove("left");
                Answer::Whole(200, Value::Object(row.clone()))
            }
            ("DELETE", ["evacuations", CN]) if self.evacuation.is_some() => {
                self.evacuation = None;
                self.reserve(false);
                Answer::Whole(200, Value::Null)
            }
            ("GET", ["settings"]) => {
                Answer::Whole(200, json!({"max_running_migrations_per_cn": 5}))
            }
            ("GET", ["settings", _]) => {
                Answer::Whole(200, json!({"max_running_migrations_per_cn": 2}))
            }
            ("GET", ["servers"]) => Answer::Whole(200, json!([{"uuid": CN, "hostname": HOST}])),
            ("GET", ["servers", cn]) => {
                Answer::Whole(200, json!({"uuid": cn, "reserved": self.reserved}))
            }
            ("POST", ["vms", vm]) if query.contains("migration_action=estimate") => match *vm {
                CORE => {
                    let message = "Cannot migrate a core instance";
                    Answer::Whole(412, json!({"code": "PreconditionFailed", "message": message}))
                }
                _ => Answer::Whole(
                    200,
                    json!({"total_seconds": 90, "downtime_seconds": 20, "size_bytes": 1024}),
                ),
            },
            _ => Answer::Whole(404, json!({"code": "ResourceNotFound", "message": path})),
        }
    }
}

/// A migration as the service shows it.
fn migration(vm: &str, (phase, state): (&str, &str)) -> Value {
    json!({
        "vm_uuid": vm, "phase": phase, "state": state, "automatic": true,
        "source_server_uuid": CN, "target_server_uuid": OTHER,
    })
}

type Shared = Arc<Mutex<Centre>>;

/// A data centre and a configuration that names it.
struct World {
    centre: Shared,
    config: String,
    url: String,
    _dir: tempfile::TempDir,
}

async fn world(goes: bool) -> World {
    let centre: Shared = Arc::new(Mutex::new(Centre { goes, ..Centre::default() }));
    let shared = Arc::clone(&centre);
    let app = Router::new().fallback(async move |request: Request| {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut centre = shared.lock().unwrap();
        let query = uri.query().unwrap_or_default();
        respond(centre.answer(method.as_str(), uri.path(), query, &body))
    });
    let url = serve(app).await;
    let dir = tempfile::tempdir().unwrap();
    World { config: config(dir.path(), &url), url, centre, _dir: dir }
}

impl World {
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.centre.lock().unwrap().log)
    }

    fn centre(&self) -> std::sync::MutexGuard<'_, Centre> {
        self.centre.lock().unwrap()
    }

    fn set_goes(&self, goes: bool) {
        self.centre.lock().unwrap().goes = goes;
    }
}

#[tokio::test]
async fn a_dry_run_says_what_it_takes_and_changes_nothing() {
    let world = world(false).await;
    let done = run_with(
        &world.config,
        &["evacuate", CN, "--dry-run", "-H", "-o", "alias,minutes,downtime,obstacle"],
    )
    .await;
    let want = "\
vm0  2  20s  -
vm1  2  20s  -
vm2  2  20s  -
vm3  -  -    Cannot migrate a core instance
";
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), want), "{}", done.stderr);
    assert_eq!(world.log(), [""; 0]);
}

#[tokio::test]
async fn a_dry_run_says_which_instances_migrate_already() {
    let world = world(false).await;
    world.centre().migrations = BTreeMap::from([
        (VMS[0].to_owned(), ("abort", "running")),
        (VMS[1].to_owned(), ("sync", "running")),
    ]);
    let done = run_with(&world.config, &["evacuate", HOST, "--dry-run"]).await;
    let row = |vm: &str| done.stdout.lines().find(|line| line.starts_with(vm)).unwrap().to_owned();
    let said = row("vm0");
    assert!(said.ends_with("  its migration is being aborted; it begins anew"), "{said}");
    assert!(!said.contains(&OTHER[..8]), "that copy goes: {said}");
    let said = row("vm1");
    assert!(
        said.ends_with("  it migrates already: sync running") && said.contains(&OTHER[..8]),
        "{said}"
    );
    assert!(row("vm2").ends_with("20s"), "{}", done.stdout);
}

#[tokio::test]
async fn all_that_can_move_do_and_the_node_is_given_back() {
    let world = world(true).await;
    let done = run_with(&world.config, &["evacuate", CN]).await;
    assert_eq!(done.code, Some(1), "one stays: {}", done.stderr);
    for part in
        ["vm0: switch successful\n", "Cannot migrate a core instance\n", "\n3 moved, 1 stay\n"]
    {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert!(done.stdout.ends_with("The node may get new instances again\n"), "{}", done.stdout);
    let log = world.log();
    assert_eq!(
        (log.first().unwrap().as_str(), log.last().unwrap().as_str()),
        ("reserved true", "reserved false")
    );
    assert_eq!(world.centre.lock().unwrap().most, 2, "the node's own limit");
}

#[tokio::test] // M107
async fn an_agent_that_is_away_for_a_moment_keeps_no_instance_on_the_node() {
    let world = world(true).await;
    world.centre().away = 6;
    let done = run_with(&world.config, &["evacuate", CN]).await;
    assert!(done.stdout.contains("\n3 moved, 1 stay\n"), "{} {}", done.stdout, done.stderr);
    assert_eq!(world.centre().away, 0);
}

#[tokio::test]
async fn a_node_that_was_reserved_stays_so() {
    let world = world(true).await;
    world.centre.lock().unwrap().reserved = true;
    let done = run_with(&world.config, &["evacuate", CN]).await;
    assert!(
        done.stdout.ends_with("The node was reserved before, and stays so\n"),
        "{}",
        done.stdout
    );
    assert!(world.log().iter().all(|line| !line.starts_with("reserved")));
    assert!(world.centre.lock().unwrap().reserved);
}

#[tokio::test]
async fn it_is_left_paused_resumed_and_released() {
    let world = world(false).await;
    let mut running = start(&world.config, &["evacuate", CN]);
    while !running.line().await.contains("vm1: begin running") {}
    world.centre.lock().unwrap().step();
    let left = running.interrupt().await;
    assert_eq!(left.code, Some(130));
    assert!(
        left.stderr.contains(&format!("goes on. Watch it with: sdc-migrate evacuate {CN}")),
        "{}",
        left.stderr
    );
    assert_eq!(world.log()[..3], ["reserved true", "begin 0", "begin 1"]);

    // Those that have begun reach their sync, and are paused there.
    world.set_goes(true);
    let done = run_with(&world.config, &["evacuate", HOST, "--pause"]).await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let want = "The evacuation is paused. Go on with: sdc-migrate evacuate cn-07\n";
    assert!(done.stdout.contains(want), "as it was typed: {}", done.stdout);
    let paused: Vec<_> = world.centre.lock().unwrap().migrations.values().copied().collect();
    assert!(paused.iter().all(|(_, state)| ["paused", "successful"].contains(state)), "{paused:?}");
    assert!(world.centre.lock().unwrap().reserved, "it gets no new VMs meanwhile");
    world.log();

    let done = run_with(&world.config, &["evacuate", CN]).await;
    assert!(done.stdout.contains("3 moved, 1 stay\n"), "{}", done.stdout);
    assert_eq!(world.log().last().map(String::as_str), Some("reserved false"));

    let done = run_with(&world.config, &["evacuate", HOST, "--release"]).await;
    let want = "No evacuation of node cn-07 is under way\n";
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), want));
    let done = run_with(&world.config, &["evacuate", CN, "--pause"]).await;
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("no evacuation of node"), "{}", done.stderr);
}

#[tokio::test]
async fn without_a_wait_the_service_is_asked_and_the_command_ends() {
    let world = world(false).await;
    let done = run_with(&world.config, &["evacuate", HOST, "--at-once", "1", "--no-wait"]).await;
    let want = "The service evacuates the node. Watch it with: sdc-migrate evacuate cn-07\n";
    assert_eq!((done.code, done.stdout.starts_with(want)), (Some(0), true), "{}", done.stdout);
    {
        let centre = world.centre();
        let row = centre.evacuation.as_ref().expect("the service has it");
        assert_eq!((&row["paused"], &row["at_once"]), (&json!(false), &json!(1)), "{row}");
    }
    let done = run_with(&world.config, &["evacuate", HOST, "--pause", "--no-wait"]).await;
    assert_eq!(done.code, Some(2), "{}", done.stderr);
}

#[tokio::test] // M149
async fn a_pause_ends_the_evacuation_that_runs_elsewhere() {
    let world = world(false).await;
    let mut running = start(&world.config, &["evacuate", CN]);
    while !running.line().await.contains("vm1: begin running") {}
    for (_, phase) in world.centre.lock().unwrap().migrations.iter_mut() {
        *phase = ("sync", "running");
    }
    // From another headnode: it has a configuration and files of its own.
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = config(dir.path(), &world.url);
    let done = run_with(&elsewhere, &["evacuations", "-H", "-p", "-o", "node,state,by"]).await;
    assert_eq!(done.stdout, format!("{HOST}:waits:ops\n"), "{}", done.stderr);
    let done = run_with(&elsewhere, &["evacuate", CN, "--pause"]).await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    while running.line().await != "The evacuation was paused or ended by another command" {}
    let done = run_with(&elsewhere, &["evacuate", CN, "--release"]).await;
    assert!(done.stdout.starts_with("The evacuation is over."), "{}", done.stdout);
    assert_eq!(world.centre().evacuation, None);
    assert!(!world.centre.lock().unwrap().reserved);
}
