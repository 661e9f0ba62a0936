// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node is installed anew under its old uuid while it has one end of a migration: its pool and the state of its
//! agents are empty, its sysinfo and addresses are as they were.

use simnode::CreateOptions;
use testbed::lab::World;
use testbed::process;

use super::*;
use crate::common::{LATE, Lab, program};

/// The daemons of a node.
const DAEMONS: [&str; 4] = ["migration-agent", "vm-agent", "net-agent", "vminfod"];

/// Installs the node anew: what it had is gone, and its agents start as after any installation. An operator revokes the
/// key that went with it, so that a join token lets the new one in.
async fn reimaged(lab: &Lab, world: &mut World) {
    let aside = &lab.dir().join("anew");
    for name in DAEMONS {
        world.end(name, true).await.unwrap();
    }
    let (dir, cn) = (world.node().dir().to_owned(), world.node().cn_uuid().to_owned());
    let options = CreateOptions { vms: 0, cn_uuid: Some(cn), ..CreateOptions::new(aside) };
    Node::create(&CreateOptions { program: Some(program()), ..options }).unwrap();
    for part in ["root/etc/zones", "root/zones", "root/var", "state"] {
        std::fs::remove_dir_all(dir.join(part)).unwrap();
        std::fs::rename(aside.join(part), dir.join(part)).unwrap();
    }
    for state in ["net-agent", "vm-agent", "migration-agent"] {
        std::fs::remove_dir_all(dir.join(state)).unwrap();
    }
    std::fs::remove_dir_all(aside).unwrap();
    std::fs::create_dir(dir.join("net-agent")).unwrap();
    world.start_vminfod().await.unwrap();
    world.start_agent().await.unwrap();
    world.start_vm_agent().await.unwrap();
    let tool = lab.node().dir().join("bin/sdc-migrate");
    let revoked = ["trust", "revoke", world.node().cn_uuid()];
    let done = process::run(&tool, &revoked, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    world.start_migration_agent().await.unwrap();
}

/// Does an action on the VM, with the other node as the target, and waits for its end.
async fn done(client: &Migrations, action: &str, to: &str) {
    let target = Options { override_server_uuid: Some(to.to_owned()), ..Options::default() };
    client.act(VM, action, &target).await.unwrap();
    let error = rested(client, VM).await.and_then(|record| record.error);
    assert!(error.is_none(), "{action}: {error:?}");
}

/// The VM has its NICs and its record where it is, and nobody says that it is gone.
async fn is_known_on(lab: &Lab, cn: &str) {
    until("VMAPI and NAPI have the VM where it runs", async || {
        let vm = lab.vmapi.store().get(VM).unwrap();
        let nics = lab.nics().await.unwrap();
        let own: Vec<_> = nics
            .iter()
            .filter(|nic| nic.belongs_to_uuid == VM)
            .map(|nic| nic.cn_uuid.clone())
            .collect();
        vm["state"] == "running"
            && vm["server_uuid"] == cn
            && own.len() == 2
            && own.iter().all(|it| it.as_deref() == Some(cn))
    })
    .await;
}

/// What runs when the node is installed anew: which operation was the last, which end the node has, and the commands of
/// which one ends the migration.
type Attack = (&'static str, End, &'static [&'static str]);

async fn attacked((last, end, commands): Attack) {
    let what = format!("{last}, {end}");
    let (mut lab, mut other) = nodes(|_| {}).await;
    provisioned(&mut lab).await;
    let client = lab.migrations().unwrap();
    let cns = [lab.node(), other.node()].map(|node| node.cn_uuid().to_owned());
    let mut to = cns[1].as_str();
    if end == End::Source {
        for action in ["begin", "sync", "switch", "finalize"] {
            done(&client, action, to).await;
        }
        to = &cns[0];
    }
    for action in ["begin", "sync", "switch"] {
        done(&client, action, to).await;
        if action == last {
            break;
        }
    }
    reimaged(&lab, &mut other).await;
    let told = ended(&client, VM, commands).await;
    println!("{what}: {told:?}");
    let copies = [lab.node(), other.node()].map(|node| Judge::new(VM).copy(node));
    assert!(told.is_ok(), "{what}: {told:?}: {copies:?}");
    let up = copies[0].is_some_and(|it| it.running && !it.hidden && it.autoboot);
    assert!(up && copies[1].is_none(), "{what}: {told:?}: {copies:?}");
    is_known_on(&lab, &cns[0]).await;
    other.stop().await.unwrap();
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // M111
#[ignore = "minutes: a node is installed anew, by hand"]
async fn a_node_installed_anew_that_was_the_target_costs_its_copy_alone() {
    attacked(("sync", End::Target, &["switch", "abort"])).await;
}

#[tokio::test(flavor = "multi_thread")] // M178
#[ignore = "minutes: a node is installed anew, by hand"]
async fn a_vm_that_was_switched_to_a_node_installed_anew_is_rescued_from_the_source() {
    attacked(("switch", End::Target, &["rollback", "finalize", "rescue"])).await;
}

#[tokio::test(flavor = "multi_thread")] // M178
#[ignore = "minutes: a node is installed anew, by hand"]
async fn a_vm_whose_source_was_installed_anew_is_rescued_from_its_copy() {
    attacked(("sync", End::Source, &["switch", "abort", "rescue"])).await;
}

#[tokio::test(flavor = "multi_thread")] // M111
#[ignore = "minutes: a node is installed anew, by hand"]
async fn a_source_installed_anew_after_the_switch_leaves_nothing_but_to_finalize() {
    attacked(("switch", End::Source, &["rollback", "switch", "finalize"])).await;
}
