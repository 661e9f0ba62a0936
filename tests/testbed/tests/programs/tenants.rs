// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A tenant's text in the properties of his dataset, with the node's programs as they are: he sets it
//! with `zfs`, as his zone's root can.

use serde_json::Value;
use testbed::client::tools::fetch;
use testbed::process;

use super::common::{LATE, Lab, text};

#[tokio::test(flavor = "multi_thread")] // S131, F101
async fn a_tenants_mountpoint_is_no_row_of_another() {
    let lab = Lab::start(|options| options.speed = 1).await;
    let node = lab.node();
    let zfs = async |args: &[&str]| {
        let done = process::run(&node.tool("zfs"), args, LATE).await.unwrap();
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
        done.stdout
    };
    let vms = lab.vms().await;
    let with_quota = vms.iter().filter(|vm| vm.get("quota").is_some_and(Value::is_number));
    let [tenant, victim] = with_quota.take(2).collect::<Vec<_>>()[..] else { panic!("no two VMs") };
    let (root, victim) = (text(tenant, "zfs_filesystem"), victim.clone());
    let (data, other) = (format!("{root}/data"), text(&victim, "zfs_filesystem"));
    if node.datasets().unwrap().get(&data).is_none() {
        zfs(&["create", &data]).await;
    }
    zfs(&["set", "zoned=on", &data]).await;
    let row = format!(
        "lz4\t1\t1\t/{other}\t{other}\t1099511627776\t131072\t0\t0\t1\tfilesystem\t0\t-\t-\t-\t0\toff"
    );
    let few = row.replacen(&format!("\t/{other}"), "", 1);
    zfs(&["set", &format!("mountpoint=/a\n{row}\n{few}\n{other}\t/x\n{other}\t1\t0\t5"), &data])
        .await;
    let printed = zfs(&["list", "-H", "-o", "name,mountpoint", "-r", root]).await;
    assert!(printed.lines().any(|line| *line == row), "zfs prints the text as it is: {printed}");
    let (url, uuid) = (lab.vminfod_url(), text(&victim, "uuid"));
    for path in ["/vms?sync=true".to_owned(), "/vms".to_owned(), format!("/vms/{uuid}?sync=true")] {
        let shown = fetch(&url, &path).await.unwrap();
        let shown = match &shown {
            Value::Array(all) => all.iter().find(|vm| vm["uuid"] == uuid).cloned().unwrap(),
            one => one.clone(),
        };
        for field in ["quota", "zfs_filesystem", "snapshots", "zfs_root_recsize"] {
            assert_eq!(Some(&shown[field]), victim.get(field), "{path}: {field}");
        }
    }
    lab.stop().await;
}
