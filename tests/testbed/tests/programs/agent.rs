// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! net-agent end to end: the real programs on a simulated node, and the mocks' record of every
//! request at the end of each story.

use std::time::Duration;

use mocks::faults::{Action, Rule, Seen};
use mocks::napi::{Era, NewNic};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::common::{LATE, Lab, run, text, until};

/// Production's two minutes, and what a busy machine adds to each request.
const TWO_MINUTES: Duration = Duration::from_secs(120);
const SLACK: Duration = Duration::from_secs(60);
const SPEED: u32 = 600;

/// A lab whose data centre knows its VMs.
struct Story {
    lab: Lab,
    vms: Vec<VmObject>,
    speed: u32,
}

impl Story {
    async fn begin(speed: u32, era: Era) -> Self {
        let lab = Lab::start(|options| (options.speed, options.era) = (speed, era)).await;
        let vms = lab.vms().await;
        Self { lab, vms, speed }
    }

    /// The data centre's records, all right.
    fn clean(self) -> Self {
        let cn = self.lab.node().cn_uuid();
        self.lab.vmapi.store().seed_from_vms(&self.vms, cn);
        self.lab.napi.store().seed_from_vms(&self.vms, cn).unwrap();
        self
    }

    /// The node's VM agent, which tells VMAPI.
    async fn with_vm_agent(mut self) -> Self {
        self.lab.start_vm_agent().await.unwrap();
        self
    }

    /// VMs in this state that have NICs and are in the inventory.
    fn pick(&self, state: &str) -> Vec<&VmObject> {
        let fits =
            |vm: &&VmObject| vm.state() == Some(state) && !vm.is_hidden() && !vm.macs().is_empty();
        self.vms.iter().filter(fits).collect()
    }

    fn has_all(&self, vm: &VmObject) -> bool {
        vm.macs().iter().all(|mac| self.lab.napi.store().nic(&mac.to_string()).is_some())
    }

    fn has_none(&self, vm: &VmObject) -> bool {
        !vm.macs().iter().any(|mac| self.lab.napi.store().nic(&mac.to_string()).is_some())
    }

    async fn status(&self) -> Value {
        self.lab.agent_status().await
    }

    async fn count(&self, key: &str) -> u64 {
        self.status().await[key].as_u64().unwrap_or_default()
    }

    /// Starts the agent and waits until it has done its first pass.
    async fn start_agent(&mut self) {
        self.lab.start_agent().await.unwrap();
        until("the first pass is done", async || self.count("pass").await > 0).await;
    }

    /// Waits for more rounds of the pass.
    async fn rounds_go_by(&self) {
        let rounds = self.count("resyncs").await + 4;
        until("rounds go by", async || self.count("resyncs").await >= rounds).await;
    }

    /// Waits until VMAPI says that the VM is destroyed.
    async fn is_destroyed(&self, vm: &VmObject) {
        let known = || self.lab.vmapi.store().get(text(vm, "uuid"));
        until("VMAPI says destroyed", async || {
            known().is_some_and(|vm| vm["state"] == "destroyed")
        })
        .await;
    }

    /// No running VM but these has lost a NIC.
    fn others_have_all(&self, gone: &[&VmObject]) {
        for vm in self.pick("running") {
            let has_gone = gone.iter().any(|one| one["uuid"] == vm["uuid"]);
            assert!(has_gone || self.has_all(vm), "a live VM lost a NIC");
        }
    }

    async fn net_agent(&self, args: &[&str]) {
        let config = self.lab.dir().join("cn/net-agent.json");
        let args = [&["@net-agent", "--config", config.to_str().unwrap()], args].concat();
        let done = run(&args).await;
        assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    }

    /// Requests of the agent to NAPI.
    fn asked(&self) -> Vec<Seen> {
        self.lab.napi.requests().into_iter().filter(by_agent).collect()
    }

    fn deletes(&self) -> usize {
        self.asked().iter().filter(|seen| seen.method == "DELETE").count()
    }

    fn scaled(&self, span: Duration) -> Duration {
        span / self.speed + SLACK
    }

    /// The record of every request: what no run may ever hold.
    async fn end(self) {
        for seen in self.lab.vmapi.requests() {
            let reads = seen.method == "GET" || !by_agent(&seen);
            assert!(reads, "VMAPI is only read by net-agent: {seen:?}");
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
        self.lab.stop().await;
    }
}

fn by_agent(seen: &Seen) -> bool {
    seen.headers.get("user-agent").is_some_and(|agent| agent.starts_with("net-agent/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn nics_of_a_vm_that_vmadm_or_zoneadm_removes_go_within_two_minutes() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean().with_vm_agent().await;
    story.start_agent().await;
    let (vmadm, zoneadm) = (story.pick("running")[0].clone(), story.pick("running")[1].clone());
    let verbs = story.lab.verbs();
    verbs.delete(text(&vmadm, "uuid")).await.unwrap();
    verbs.delete_raw(text(&zoneadm, "uuid")).await.unwrap();
    for vm in [&vmadm, &zoneadm] {
        story.is_destroyed(vm).await;
    }
    let said = Instant::now();
    until("their NICs are gone", async || story.has_none(&vmadm) && story.has_none(&zoneadm)).await;
    assert!(said.elapsed() <= story.scaled(TWO_MINUTES), "{:?}", said.elapsed());
    story.others_have_all(&[&vmadm, &zoneadm]);
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nics_leaked_while_the_agent_was_down_are_reaped() {
    let mut story = Story::begin(SPEED, Era::Rfd58).await.clean().with_vm_agent().await;
    story.start_agent().await;
    story.lab.end("net-agent", true).await.unwrap();
    let goes = story.pick("running")[0].clone();
    let verbs = story.lab.verbs();
    verbs.delete_raw(text(&goes, "uuid")).await.unwrap();
    story.is_destroyed(&goes).await;
    assert!(story.has_all(&goes), "nobody was there to delete them");
    story.lab.start_agent().await.unwrap();
    until("they are reaped", async || story.has_none(&goes)).await;
    story.others_have_all(&[&goes]);
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_napi_that_is_upgraded_during_back_off_is_reaped_without_a_restart() {
    let mut story = Story::begin(2400, Era::Mid2017).await;
    let wrongs = story.lab.fill().await;
    story.lab.start_agent().await.unwrap();
    let pid = story.lab.pid("net-agent");
    until("it has found out that NAPI is old", async || {
        story.asked().iter().any(|seen| seen.query.contains("no_such_parameter"))
    })
    .await;
    let left = |story: &Story| {
        let store = story.lab.napi.store().clone();
        wrongs.leaked.iter().filter(|mac| store.nic(&mac.to_string()).is_some()).count()
    };
    assert_eq!(left(&story), wrongs.leaked.len());
    story.lab.napi.set_era(Era::Rfd58);
    until("the leaked NICs are reaped", async || left(&story) == 0).await;
    assert_eq!(story.lab.pid("net-agent"), pid, "the same process");
    story.lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_napi_restored_from_an_old_backup_trips_the_brake() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean();
    let cn = story.lab.node().cn_uuid().to_owned();
    // VMs long gone, of which not even VMAPI knows any more.
    for n in 0..12 {
        let vm = uuid::Uuid::from_u128(0x60_00 + n).to_string();
        let nic = NewNic::zone(&format!("90:b8:d0:fe:ed:{n:02x}"), &vm, &cn);
        story.lab.napi.store().add_nic(nic.aged(LATE * 1000)).unwrap();
    }
    let before = story.lab.napi.store().nics().len();
    story.lab.start_agent().await.unwrap();
    until("the brake is on", async || story.status().await["brake"].is_string()).await;
    // Many rounds of the pass later it still is.
    story.rounds_go_by().await;
    assert_eq!(story.deletes(), 0);
    assert_eq!(story.lab.napi.store().nics().len(), before);
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_napi_makes_the_agent_neither_delete_nor_create() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean();
    story.start_agent().await;
    story.lab.napi.store().reset();
    story.lab.end("net-agent", false).await.unwrap();
    let writes = story.asked().iter().filter(|seen| seen.method != "GET").count();
    story.start_agent().await;
    story.rounds_go_by().await;
    assert_eq!(story.asked().iter().filter(|seen| seen.method != "GET").count(), writes);
    assert!(story.lab.napi.store().nics().is_empty());
    let status = story.status().await;
    assert!(status["missing_in_napi"].as_u64().unwrap() > 0, "and it says so");
    assert!(status["brake"].is_string(), "{status}");
    let now = story.lab.vms().await;
    assert_eq!(now.len(), story.vms.len(), "no VM was touched");
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_commit_changes_nothing() {
    let mut story = Story::begin(SPEED, Era::Master).await;
    let wrongs = story.lab.fill().await;
    for method in ["PUT", "DELETE"] {
        story.lab.napi.add_fault(Rule::new(method, "/nics/*", Action::DropResponse).times(2));
    }
    story.lab.start_agent().await.unwrap();
    until("the data centre is put right", async || {
        let nics = story.lab.nics().await.unwrap();
        let leaked = nics.iter().any(|nic| wrongs.leaked.contains(&nic.mac));
        let bare = nics.iter().any(|nic| wrongs.bare.contains(&nic.mac) && nic.cn_uuid.is_none());
        !leaked && !bare
    })
    .await;
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
    let left = story.lab.nics().await.unwrap();
    for mac in &wrongs.live {
        assert!(left.iter().any(|nic| nic.mac == *mac), "{mac} of a live VM is gone");
    }
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_vminfod_causes_no_request_to_napi() {
    let mut story = Story::begin(240, Era::Rfd58).await.clean();
    story.start_agent().await;
    let synced = async |story: &Story| {
        until("the agent follows vminfod", async || {
            let waiting = story.status().await["waiting_for"].to_string();
            !waiting.contains("vminfod")
        })
        .await;
    };
    synced(&story).await;
    let before = story.asked().len();
    for crash in [true, false, true] {
        let lost = story.count("streams_lost").await;
        story.lab.end("vminfod", crash).await.unwrap();
        until("the agent has noticed", async || story.count("streams_lost").await > lost).await;
        story.lab.start_vminfod().await.unwrap();
        synced(&story).await;
    }
    assert_eq!(story.asked().len(), before, "{:?}", story.asked().split_off(before));
    // And it is awake all the same: what really changes is asked about.
    let boots = text(story.pick("stopped")[0], "uuid").to_owned();
    story.lab.verbs().boot(&boots).await.unwrap();
    until("a real change is asked about", async || story.asked().len() > before).await;
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_honoured_within_a_second_and_its_release_lets_go() {
    let mut story = Story::begin(SPEED, Era::Master).await.clean();
    story.start_agent().await;
    let goes = story.pick("running")[0].clone();
    let uuid = text(&goes, "uuid").to_owned();
    // VMAPI has not heard of the end yet: the deletes are queued and asked about again and again.
    story.lab.verbs().delete_raw(&uuid).await.unwrap();
    until("the deletes are queued", async || {
        story.status().await["departed"].to_string().contains("VMAPI says running")
    })
    .await;
    story.net_agent(&["hold", "--vm", &uuid, "--reason", "a migration"]).await;
    let held = Instant::now();
    until("the hold is honoured", async || {
        story.status().await["departed"].to_string().contains("held: a migration")
    })
    .await;
    println!("shown as held after {:?}", held.elapsed());
    let cn = story.lab.node().cn_uuid().to_owned();
    story.lab.vmapi.store().set(&uuid, "destroyed", Some(&cn));
    let tries = story.count("deferred").await + 3;
    until("it is tried again in vain", async || story.count("deferred").await >= tries).await;
    assert!(story.has_all(&goes) && story.deletes() == 0, "held");
    assert!(json!(story.status().await["holds"]).to_string().contains(&uuid));
    story.net_agent(&["release", "--vm", &uuid]).await;
    until("released, they go", async || story.has_none(&goes)).await;
    story.end().await;
}
