// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! net-agent end to end: the real programs on a simulated node, and the mocks' record of every
//! request at the end of each story.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mocks::faults::{Action, Rule, Seen};
use mocks::napi::{Era, NewNic};
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::VmObject;
use serde_json::{Map, Value, json};
use simnode::{Verbs, Wait};
use testbed::lab::seed::{self, nics_of};
use testbed::lab::world::{OWN_AGENT, until};
use testbed::lab::{World, WorldOptions, vm_agent};
use testbed::process;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Longer than anything here takes that goes well on a busy machine.
const LATE: Duration = Duration::from_secs(120);
/// Production's two minutes, and what a busy machine adds to each request.
const TWO_MINUTES: Duration = Duration::from_secs(120);
const SLACK: Duration = Duration::from_secs(8);
const SPEED: u32 = 600;

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testbed"))
}

/// A world whose vminfod runs, and whose data centre knows its VMs.
struct Story {
    world: World,
    vms: Vec<VmObject>,
    vm_agent: Option<JoinHandle<()>>,
    speed: u32,
    _dir: tempfile::TempDir,
}

impl Story {
    async fn begin(speed: u32, era: Era) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options =
            WorldOptions { speed, era, ..WorldOptions::new(dir.path().join("cn"), program()) };
        let mut world = World::create(options).await.unwrap();
        world.start_vminfod().await.unwrap();
        let vms = world.hub().unwrap().vms(true).await.unwrap().vms;
        Self { world, vms, vm_agent: None, speed, _dir: dir }
    }

    /// The data centre's records, all right.
    fn clean(self) -> Self {
        let cn = self.world.node().cn_uuid();
        self.world.vmapi.store().seed_from_vms(&self.vms, cn);
        self.world.napi.store().seed_from_vms(&self.vms, cn).unwrap();
        self
    }

    /// The node's VM agent, which tells VMAPI.
    fn with_vm_agent(mut self) -> Self {
        let (hub, vmapi) = (self.world.hub().unwrap(), self.world.vmapi.store().clone());
        let cn = self.world.node().cn_uuid().to_owned();
        self.vm_agent = Some(tokio::spawn(vm_agent::follow(hub, vmapi, cn)));
        self
    }

    /// VMs in this state that have NICs and are in the inventory.
    fn pick(&self, state: &str) -> Vec<&VmObject> {
        let shown = |vm: &&VmObject| vm.get("do_not_inventory") != Some(&Value::Bool(true));
        let all = self.vms.iter().filter(shown);
        all.filter(|vm| text(vm, "state") == state && !nics_of(vm).is_empty()).collect()
    }

    fn has_all(&self, vm: &VmObject) -> bool {
        nics_of(vm).iter().all(|mac| self.world.napi.store().nic(&mac.to_string()).is_some())
    }

    fn has_none(&self, vm: &VmObject) -> bool {
        !nics_of(vm).iter().any(|mac| self.world.napi.store().nic(&mac.to_string()).is_some())
    }

    async fn status(&self) -> Value {
        let http = Http::new(&self.world.agent_url(), OWN_AGENT).unwrap();
        http.execute(Call::get(&["status"])).await.unwrap().object().unwrap().clone().into()
    }

    /// Waits until the agent has done its first pass.
    async fn passed(&self) {
        until("the first pass is done", LATE, || async {
            Ok(self.status().await["pass"].as_u64().unwrap_or(0) > 0)
        })
        .await
        .unwrap();
    }

    async fn net_agent(&self, args: &[&str]) {
        let config = self.world.node().dir().join("net-agent.json");
        let mut all = vec!["@net-agent".to_owned(), "--config".to_owned(), shown(&config)];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let done = process::run(&program(), &all, LATE).await.unwrap();
        assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    }

    /// Requests of the agent to NAPI.
    fn asked(&self) -> Vec<Seen> {
        self.world.napi.requests().into_iter().filter(by_agent).collect()
    }

    fn deletes(&self) -> usize {
        self.asked().iter().filter(|seen| seen.method == "DELETE").count()
    }

    fn scaled(&self, span: Duration) -> Duration {
        span / self.speed + SLACK
    }

    /// The record of every request: what no run may ever hold.
    async fn end(self) {
        for seen in self.world.vmapi.requests() {
            assert_eq!(seen.method, "GET", "VMAPI is only read: {seen:?}");
            assert!(!seen.query.contains("sync"), "{seen:?}");
        }
        for seen in self.asked() {
            let reads = seen.method == "GET";
            assert!(reads || seen.path.starts_with("/nics/"), "{seen:?}");
            assert!(matches!(seen.method.as_str(), "GET" | "PUT" | "DELETE"), "{seen:?}");
            let guarded = seen.headers.contains_key("if-match");
            assert!(reads || guarded, "a write without a precondition: {seen:?}");
            let body: Map<String, Value> = serde_json::from_str(&seen.body).unwrap_or_default();
            assert!(!body.contains_key("ip") && !body.contains_key("reserved"), "{seen:?}");
        }
        if let Some(vm_agent) = self.vm_agent {
            vm_agent.abort();
        }
        self.world.stop().await.unwrap();
    }
}

fn by_agent(seen: &Seen) -> bool {
    seen.headers.get("user-agent").is_some_and(|agent| agent.starts_with("net-agent/"))
}

fn text<'a>(vm: &'a VmObject, key: &str) -> &'a str {
    vm.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nics_of_a_vm_that_vmadm_or_zoneadm_removes_go_within_two_minutes() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean().with_vm_agent();
    story.world.start_agent().await.unwrap();
    story.passed().await;
    let (vmadm, zoneadm) = (story.pick("running")[0].clone(), story.pick("running")[1].clone());
    let verbs = Verbs::new(story.world.node(), Wait::none());
    verbs.delete(text(&vmadm, "uuid")).await.unwrap();
    verbs.delete_raw(text(&zoneadm, "uuid")).await.unwrap();
    for vm in [&vmadm, &zoneadm] {
        until("VMAPI says destroyed", LATE, || async {
            let known = story.world.vmapi.store().get(text(vm, "uuid"));
            Ok(known.is_some_and(|vm| vm["state"] == "destroyed"))
        })
        .await
        .unwrap();
    }
    let said = Instant::now();
    until("their NICs are gone", LATE, || async {
        Ok(story.has_none(&vmadm) && story.has_none(&zoneadm))
    })
    .await
    .unwrap();
    assert!(said.elapsed() <= story.scaled(TWO_MINUTES), "{:?}", said.elapsed());
    for vm in story.pick("running").iter().filter(|vm| vm["uuid"] != vmadm["uuid"]) {
        assert!(vm["uuid"] == zoneadm["uuid"] || story.has_all(vm), "a live VM lost a NIC");
    }
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nics_leaked_while_the_agent_was_down_are_reaped() {
    let mut story = Story::begin(SPEED, Era::Rfd58).await.clean().with_vm_agent();
    story.world.start_agent().await.unwrap();
    story.passed().await;
    story.world.end_agent(true).await.unwrap();
    let goes = story.pick("running")[0].clone();
    let verbs = Verbs::new(story.world.node(), Wait::none());
    verbs.delete_raw(text(&goes, "uuid")).await.unwrap();
    until("VMAPI says destroyed", LATE, || async {
        let known = story.world.vmapi.store().get(text(&goes, "uuid"));
        Ok(known.is_some_and(|vm| vm["state"] == "destroyed"))
    })
    .await
    .unwrap();
    assert!(story.has_all(&goes), "nobody was there to delete them");
    story.world.start_agent().await.unwrap();
    until("they are reaped", LATE, || async { Ok(story.has_none(&goes)) }).await.unwrap();
    for vm in story.pick("running").iter().filter(|vm| vm["uuid"] != goes["uuid"]) {
        assert!(story.has_all(vm), "a live VM lost a NIC");
    }
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_napi_that_is_upgraded_during_back_off_is_reaped_without_a_restart() {
    let mut story = Story::begin(2400, Era::Mid2017).await;
    let wrongs = seed::fill(&story.world, &story.vms).unwrap();
    story.world.start_agent().await.unwrap();
    let pid = story.world.agent_pid();
    until("it has found out that NAPI is old", LATE, || async {
        Ok(story.asked().iter().any(|seen| seen.query.contains("no_such_parameter")))
    })
    .await
    .unwrap();
    let left = |story: &Story| {
        let store = story.world.napi.store().clone();
        wrongs.leaked.iter().filter(|mac| store.nic(&mac.to_string()).is_some()).count()
    };
    assert_eq!(left(&story), wrongs.leaked.len());
    story.world.napi.set_era(Era::Rfd58);
    until("the leaked NICs are reaped", LATE, || async { Ok(left(&story) == 0) }).await.unwrap();
    assert_eq!(story.world.agent_pid(), pid, "the same process");
    story.world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_napi_restored_from_an_old_backup_trips_the_brake() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean();
    let cn = story.world.node().cn_uuid().to_owned();
    // VMs long gone, of which not even VMAPI knows any more.
    for n in 0..12 {
        let vm = uuid::Uuid::new_v4().to_string();
        let nic = NewNic::zone(&format!("90:b8:d0:fe:ed:{n:02x}"), &vm, &cn);
        story.world.napi.store().add_nic(nic.aged(LATE * 1000)).unwrap();
    }
    let before = story.world.napi.store().nics().len();
    story.world.start_agent().await.unwrap();
    until("the brake is on", LATE, || async { Ok(story.status().await["brake"].is_string()) })
        .await
        .unwrap();
    // Many rounds of the pass later it still is.
    let rounds = story.status().await["resyncs"].as_u64().unwrap_or(0) + 4;
    until("rounds go by", LATE, || async {
        Ok(story.status().await["resyncs"].as_u64().unwrap_or(0) >= rounds)
    })
    .await
    .unwrap();
    assert_eq!(story.deletes(), 0);
    assert_eq!(story.world.napi.store().nics().len(), before);
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_napi_makes_the_agent_neither_delete_nor_create() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean();
    story.world.start_agent().await.unwrap();
    story.passed().await;
    story.world.napi.store().reset();
    story.world.end_agent(false).await.unwrap();
    let writes = story.asked().iter().filter(|seen| seen.method != "GET").count();
    story.world.start_agent().await.unwrap();
    story.passed().await;
    let rounds = story.status().await["resyncs"].as_u64().unwrap_or(0) + 4;
    until("rounds go by", LATE, || async {
        Ok(story.status().await["resyncs"].as_u64().unwrap_or(0) >= rounds)
    })
    .await
    .unwrap();
    assert_eq!(story.asked().iter().filter(|seen| seen.method != "GET").count(), writes);
    assert!(story.world.napi.store().nics().is_empty());
    let status = story.status().await;
    assert!(status["missing_in_napi"].as_u64().unwrap() > 0, "and it says so");
    assert!(status["brake"].is_string(), "{status}");
    let now = story.world.hub().unwrap().vms(true).await.unwrap().vms;
    assert_eq!(now.len(), story.vms.len(), "no VM was touched");
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_commit_changes_nothing() {
    let mut story = Story::begin(SPEED, Era::Master).await;
    let wrongs = seed::fill(&story.world, &story.vms).unwrap();
    for method in ["PUT", "DELETE"] {
        story.world.napi.add_fault(Rule::new(method, "/nics/*", Action::DropResponse).times(2));
    }
    story.world.start_agent().await.unwrap();
    until("the data centre is put right", LATE, || async {
        let nics = story.world.nics().await?;
        let leaked = nics.iter().any(|nic| wrongs.leaked.contains(&nic.mac));
        let bare = nics.iter().any(|nic| wrongs.bare.contains(&nic.mac) && nic.cn_uuid.is_none());
        Ok(!leaked && !bare)
    })
    .await
    .unwrap();
    let mut deleted: Vec<String> =
        story.asked().into_iter().filter(|seen| seen.method == "DELETE").map(|s| s.path).collect();
    deleted.sort();
    let all = deleted.len();
    deleted.dedup();
    assert_eq!(
        deleted.len(),
        all,
        "a delete whose outcome was unknown was sent again: {deleted:?}"
    );
    let left = story.world.nics().await.unwrap();
    for mac in &wrongs.live {
        assert!(left.iter().any(|nic| nic.mac == *mac), "{mac} of a live VM is gone");
    }
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_vminfod_causes_no_request_to_napi() {
    let mut story = Story::begin(240, Era::Rfd58).await.clean();
    story.world.start_agent().await.unwrap();
    story.passed().await;
    let synced = async |story: &Story| {
        until("the agent follows vminfod", LATE, || async {
            let waiting = story.status().await["waiting_for"].to_string();
            Ok(!waiting.contains("vminfod"))
        })
        .await
        .unwrap();
    };
    synced(&story).await;
    let before = story.asked().len();
    for crash in [true, false, true] {
        let lost = story.status().await["streams_lost"].as_u64().unwrap();
        story.world.end_vminfod(crash).await.unwrap();
        until("the agent has noticed", LATE, || async {
            Ok(story.status().await["streams_lost"].as_u64().unwrap() > lost)
        })
        .await
        .unwrap();
        story.world.start_vminfod().await.unwrap();
        synced(&story).await;
    }
    assert_eq!(story.asked().len(), before, "{:?}", story.asked().split_off(before));
    // And it is awake all the same: what really changes is asked about.
    let boots = text(story.pick("stopped")[0], "uuid").to_owned();
    Verbs::new(story.world.node(), Wait::none()).boot(&boots).await.unwrap();
    until("a real change is asked about", LATE, || async { Ok(story.asked().len() > before) })
        .await
        .unwrap();
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_honoured_within_a_second_and_its_release_lets_go() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean();
    story.world.start_agent().await.unwrap();
    story.passed().await;
    let goes = story.pick("running")[0].clone();
    let uuid = text(&goes, "uuid").to_owned();
    // VMAPI has not heard of the end yet: the deletes are queued and asked about again and again.
    Verbs::new(story.world.node(), Wait::none()).delete_raw(&uuid).await.unwrap();
    until("the deletes are queued", LATE, || async {
        Ok(story.status().await["departed"].to_string().contains("VMAPI says running"))
    })
    .await
    .unwrap();
    story.net_agent(&["hold", "--vm", &uuid, "--reason", "a migration"]).await;
    let held = Instant::now();
    until("the hold is honoured", LATE, || async {
        Ok(story.status().await["departed"].to_string().contains("held: a migration"))
    })
    .await
    .unwrap();
    println!("shown as held after {:?}", held.elapsed());
    let cn = story.world.node().cn_uuid().to_owned();
    story.world.vmapi.store().set(&uuid, "destroyed", Some(&cn));
    let tries = story.status().await["deferred"].as_u64().unwrap() + 3;
    until("it is tried again in vain", LATE, || async {
        Ok(story.status().await["deferred"].as_u64().unwrap() >= tries)
    })
    .await
    .unwrap();
    assert!(story.has_all(&goes) && story.deletes() == 0, "held");
    assert!(json!(story.status().await["holds"]).to_string().contains(&uuid));
    story.net_agent(&["release", "--vm", &uuid]).await;
    until("released, they go", LATE, || async { Ok(story.has_none(&goes)) }).await.unwrap();
    story.end().await;
}
