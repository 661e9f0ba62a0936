// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VM: two NICs, three datasets with contents, one of them its own and delegated.

use anyhow::ensure;
use daemon::command::Program;
use serde_json::{Map, Value, json};
use simnode::in_process::InProcess;
use simnode::{Node, Verbs, Wait, payload, sample};

pub const VM: &str = "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11";
/// Its quota in GiB.
pub const QUOTA: u64 = 10;
/// Bytes of a file in each dataset that nobody changes.
const BLOB: usize = 60_000;

/// Returns the payload that makes it.
pub fn payload() -> anyhow::Result<Map<String, Value>> {
    let mut vm = sample::fresh("joyent", Some(5))?;
    vm.insert("uuid".to_owned(), json!(VM));
    vm.insert("nics".to_owned(), nics(&vm));
    vm.insert("quota".to_owned(), json!(QUOTA));
    Ok(vm)
}

/// Exactly two NICs, as a provisioner sends them.
fn nics(vm: &Map<String, Value>) -> Value {
    let given = payload::list(vm, "nics").unwrap_or_default();
    let first = given.first().map(|nic| Value::Object((*nic).clone())).unwrap_or_default();
    let nic = |n: u8| {
        let mut nic = first.clone();
        let ip = format!("10.{}.7.9", 20 + n);
        nic["interface"] = json!(format!("net{n}"));
        nic["mac"] = json!(format!("90:b8:d0:0a:0b:0{n}"));
        nic["ip"] = json!(ip);
        nic["ips"] = json!([format!("{ip}/16")]);
        nic["gateway"] = json!(format!("10.{}.0.1", 20 + n));
        nic["gateways"] = json!([format!("10.{}.0.1", 20 + n)]);
        nic["network_uuid"] = json!(format!("f0000000-0000-4000-8000-0000000000f{n}"));
        nic["nic_tag"] = json!("admin");
        nic["primary"] = json!(n == 0);
        if n > 0 {
            nic.as_object_mut().map(|nic| nic.shift_remove("primary"));
        }
        nic
    };
    json!([nic(0), nic(1)])
}

/// The datasets of the VM with the file of each that the guest writes.
pub fn files(vm: &str) -> [(String, &'static str); 3] {
    let root = format!("zones/{vm}");
    [
        (format!("{root}/data"), "version"),
        (format!("{root}/data/more"), "version"),
        (root, "root/version"),
    ]
}

/// Each dataset with a file that nobody changes, and its bytes.
fn blobs() -> impl Iterator<Item = (String, &'static str, Vec<u8>)> {
    let all = (b'A'..).zip(files(VM));
    all.map(|(byte, (dataset, _))| {
        let path = if dataset.ends_with(VM) { "root/blob" } else { "blob" };
        (dataset, path, vec![byte; BLOB])
    })
}

/// Makes what is somebody else's, some of it with the names that a migration gives.
pub fn beside(node: &Node) -> anyhow::Result<()> {
    for line in [
        "create zones/elsewhere",
        "create zones/elsewhere/data",
        "snapshot -r zones/elsewhere@vm-migration-1",
        "snapshot zones/elsewhere@kept",
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let made = InProcess::new(node).answer(Program::Zfs, &words);
        ensure!(made.status == 0, "{}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(())
}

/// Creates it, running.
pub async fn create(node: &Node, vm: &Map<String, Value>) -> anyhow::Result<()> {
    Verbs::new(node, Wait::none()).create(vm).await?;
    let child = format!("zones/{VM}/data/more");
    let made = InProcess::new(node).answer(Program::Zfs, &["create".to_owned(), child]);
    ensure!(made.status == 0, "{}", String::from_utf8_lossy(&made.stderr));
    for (dataset, path, bytes) in blobs() {
        node.write_file(&dataset, path, &bytes)?;
    }
    Ok(())
}

/// The datasets of this node's copy whose contents are others now.
pub fn damaged(node: &Node) -> Vec<String> {
    let Ok(all) = node.datasets() else { return Vec::new() };
    let differs = |(dataset, path, want): &(String, &str, Vec<u8>)| {
        let tree = node.contents(&all, dataset).unwrap_or_default();
        tree.file(path) != Some(want.as_slice())
    };
    blobs().filter(differs).map(|(dataset, ..)| dataset).collect()
}
