// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vm-agent end to end: the real programs on a simulated node, killed and served badly, and the mock's
//! record of every request at the end.

use std::time::Duration;

use mocks::faults::{Action, Rule};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::common::{Lab, status, text, until};

/// How long after a daemon's return VMAPI may differ.
const MINUTE: Duration = Duration::from_secs(60);

/// A lab whose VMAPI knows its VMs.
async fn lab() -> Lab {
    let mut lab = Lab::start(|options| options.speed = 120).await;
    let vms = lab.vms().await;
    lab.vmapi.store().seed_from_vms(&vms, lab.node().cn_uuid());
    lab.start_vm_agent().await.unwrap();
    lab
}

/// What VMAPI has of a VM.
fn told(lab: &Lab, vm: &VmObject, key: &str) -> Value {
    let record = lab.vmapi.store().get(text(vm, "uuid"));
    record.and_then(|record| record.get(key).cloned()).unwrap_or_default()
}

/// How many requests have reached VMAPI.
fn asked(lab: &Lab) -> usize {
    lab.vmapi.requests().len()
}

/// How many of them write.
fn writes(lab: &Lab) -> usize {
    lab.vmapi.requests().iter().filter(|seen| seen.method == "PUT").count()
}

/// Every VM that is shown is in VMAPI as it is, and those of `gone` are destroyed there.
async fn agrees(lab: &Lab, gone: &[VmObject]) {
    let began = Instant::now();
    until("VMAPI agrees with the node", async || {
        let vms = lab.vms().await;
        let keys = ["state", "zone_state", "alias", "quota", "last_modified", "server_uuid"];
        let mut shown = vms.iter().filter(|vm| !vm.is_hidden());
        shown.all(|vm| {
            keys.iter().all(|key| told(lab, vm, key) == vm.get(*key).cloned().unwrap_or_default())
        }) && gone.iter().all(|vm| told(lab, vm, "state") == "destroyed")
    })
    .await;
    assert!(began.elapsed() < MINUTE, "{:?}", began.elapsed());
}

/// No request said of a VM but these that it is destroyed, and none named a hidden one.
fn told_nothing_wrong(lab: &Lab, gone: &[VmObject], hidden: &[VmObject]) {
    for seen in lab.vmapi.requests().iter().filter(|seen| seen.method == "PUT") {
        let said = format!("{} {}", seen.path, seen.body);
        let is_of = |vm: &VmObject| said.contains(text(vm, "uuid"));
        if said.contains("\"state\":\"destroyed\"") {
            assert!(seen.path.starts_with("/vms/") && gone.iter().any(is_of), "{said}");
        }
        assert!(!hidden.iter().any(is_of), "{said}");
        assert!(!seen.query.contains("sync") && seen.headers["content-type"] == "application/json");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_vmapi_is_right_within_a_minute_of_its_return() {
    let mut lab = lab().await;
    let all = lab.vms().await;
    let hidden: Vec<VmObject> = all.iter().filter(|vm| vm.is_hidden()).cloned().collect();
    let is_used = |vm: &&VmObject| vm.state() == Some("running") && !vm.is_hidden();
    let running: Vec<VmObject> = all.iter().filter(is_used).cloned().collect();
    let [a, b, c, d, ..] = &running[..] else { panic!("{} running VMs", running.len()) };
    agrees(&lab, &[]).await;

    // The agent, in the middle of changes: its PUTs are slow.
    lab.vmapi.store().faults().add(Rule::new("PUT", "/vms*", Action::DelayCommit { ms: 300 }));
    lab.verbs().halt(text(a, "uuid"), 0).await.unwrap();
    lab.verbs().halt(text(b, "uuid"), 0).await.unwrap();
    lab.verbs().delete_raw(text(c, "uuid")).await.unwrap();
    until("a write is under way", async || writes(&lab) > 0).await;
    lab.end_vm_agent(true).await.unwrap();
    lab.verbs().boot(text(b, "uuid")).await.unwrap();
    lab.vmapi.store().faults().clear();
    lab.start_vm_agent().await.unwrap();
    agrees(&lab, std::slice::from_ref(c)).await;

    // vminfod, while a VM goes.
    lab.end_vminfod(true).await.unwrap();
    lab.verbs().delete_raw(text(d, "uuid")).await.unwrap();
    lab.verbs().boot(text(a, "uuid")).await.unwrap();
    lab.start_vminfod().await.unwrap();
    let gone = [c.clone(), d.clone()];
    agrees(&lab, &gone).await;

    // VMAPI, in every way.
    let body = || {
        Some(json!({"code": "ServiceUnavailableError", "message": "Workflow API is unavailable"}))
    };
    for action in [
        Action::Status { status: 503, body: body(), retry_after: None },
        Action::Status { status: 500, body: body(), retry_after: None },
        Action::Cut,
        Action::DropResponse,
        Action::Truncate { bytes: 7 },
        Action::Garbage { text: "<html>gateway</html>".to_owned() },
    ] {
        lab.vmapi.store().faults().add(Rule::any(action));
        let before = asked(&lab);
        lab.verbs().halt(text(b, "uuid"), 0).await.unwrap();
        until("VMAPI was asked in vain", async || asked(&lab) > before + 2).await;
        lab.verbs().boot(text(b, "uuid")).await.unwrap();
        lab.end_vm_agent(true).await.unwrap();
        lab.start_vm_agent().await.unwrap();
        lab.vmapi.store().faults().clear();
        agrees(&lab, &gone).await;
    }
    told_nothing_wrong(&lab, &gone, &hidden);
    let status = status(&lab.vm_agent_url()).await;
    until("nothing is open", async || status["gone"] == 0 && status["held"] == 0).await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_seems_empty_reports_nobody() {
    let lab = lab().await;
    let vms = lab.vms().await;
    agrees(&lab, &[]).await;
    // Both witnesses of the node's zones lie alike.
    let index = lab.node().root().join("etc/zones/index");
    let whole = std::fs::read_to_string(&index).unwrap();
    let global: String = whole
        .lines()
        .filter(|line| line.starts_with("global"))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&index, global).unwrap();
    let wrapped = lab.node().tool("zoneadm");
    let kept = wrapped.with_extension("kept");
    std::fs::rename(&wrapped, &kept).unwrap();
    let script = "#!/bin/sh\necho 0:global:running:/::liveimg:shared:0\n";
    std::fs::write(&wrapped, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&wrapped, mode).unwrap();
    until("vminfod shows nobody", async || lab.vms().await.is_empty()).await;
    until("the brake is on", async || status(&lab.vm_agent_url()).await["brake"].is_string()).await;
    let turns = async || status(&lab.vm_agent_url()).await["turns"].as_u64().unwrap_or_default();
    let before = turns().await;
    until("each has been tried again", async || turns().await > before + 3 * vms.len() as u64)
        .await;
    std::fs::rename(&kept, &wrapped).unwrap();
    std::fs::write(&index, whole).unwrap();
    until("they are back", async || lab.vms().await.len() == vms.len()).await;
    agrees(&lab, &[]).await;
    until("the brake is off", async || status(&lab.vm_agent_url()).await["brake"].is_null()).await;
    told_nothing_wrong(&lab, &[], &[]);
    lab.stop().await;
}
