// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vm-agent's stories: a VMAPI that answers badly, and a node that seems empty.

use mocks::faults::{Action, Rule};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::json;

use super::told::{agrees, asked, lab, told_nothing_wrong};
use crate::common::{status, text, until};

#[tokio::test(flavor = "multi_thread")]
async fn however_vmapi_fails_it_is_right_within_a_minute_after() {
    let mut lab = lab().await;
    let all = lab.vms().await;
    let hidden: Vec<VmObject> = all.iter().filter(|vm| vm.is_hidden()).cloned().collect();
    let is_used = |vm: &&VmObject| text(vm, "state") == "running" && !vm.is_hidden();
    let vm = all.iter().find(is_used).unwrap();
    agrees(&lab, &[]).await;
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
        lab.verbs().halt(text(vm, "uuid"), 0).await.unwrap();
        until("VMAPI was asked in vain", async || asked(&lab) > before + 2).await;
        lab.verbs().boot(text(vm, "uuid")).await.unwrap();
        lab.end("vm-agent", true).await.unwrap();
        lab.start_vm_agent().await.unwrap();
        lab.vmapi.store().faults().clear();
        agrees(&lab, &[]).await;
    }
    told_nothing_wrong(&lab, &[], &hidden);
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
