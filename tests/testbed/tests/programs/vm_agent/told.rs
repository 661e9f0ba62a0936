// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A lab with vm-agent, and what VMAPI was told.

use std::time::Duration;

use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::Value;
use tokio::time::Instant;

use crate::common::{Lab, text, until};

/// How long after a daemon's return VMAPI may differ.
pub const MINUTE: Duration = Duration::from_secs(60);

/// A lab whose VMAPI knows its VMs.
pub async fn lab() -> Lab {
    lab_of(12).await
}

/// The same with so many VMs.
pub async fn lab_of(vms: u32) -> Lab {
    let mut lab = Lab::start(|options| (options.speed, options.vms) = (120, vms)).await;
    let vms = lab.vms().await;
    lab.vmapi.store().seed_from_vms(&vms, lab.node().cn_uuid());
    lab.start_vm_agent().await.unwrap();
    lab
}

/// What VMAPI has of a VM.
pub fn told(lab: &Lab, vm: &VmObject, key: &str) -> Value {
    let record = lab.vmapi.store().get(text(vm, "uuid"));
    record.and_then(|record| record.get(key).cloned()).unwrap_or_default()
}

/// How many requests have reached VMAPI.
pub fn asked(lab: &Lab) -> usize {
    lab.vmapi.requests().len()
}

/// Every VM that is shown is in VMAPI as it is, and those of `gone` are destroyed there.
pub async fn agrees(lab: &Lab, gone: &[VmObject]) {
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
pub fn told_nothing_wrong(lab: &Lab, gone: &[VmObject], hidden: &[VmObject]) {
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
