// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vm-agent's stories: a VMAPI that answers badly, and a node whose witnesses disagree.

use mocks::faults::{Action, Rule};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Value, json};

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
async fn a_node_whose_index_and_rows_are_empty_shows_its_vms_and_reports_none_destroyed() {
    let lab = lab().await;
    let vms = lab.vms().await;
    agrees(&lab, &[]).await;
    // The index and zoneadm, which reads it, lie alike; the zones' XMLs are there.
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
    let incomplete = async || status(&lab.vminfod_url()).await["incomplete"].clone();
    let names = |it: &Value| it.as_array().map_or(0, Vec::len);
    until("they are named", async || names(&incomplete().await) > 0).await;
    assert_eq!(status(&lab.vminfod_url()).await["numVms"], vms.len());
    std::fs::rename(&kept, &wrapped).unwrap();
    std::fs::write(&index, whole).unwrap();
    until("none is named", async || names(&incomplete().await) == 0).await;
    assert_eq!(lab.vms().await.len(), vms.len());
    agrees(&lab, &[]).await;
    told_nothing_wrong(&lab, &[], &[]);
    lab.stop().await;
}
