// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What people do to the VM's datasets between two syncs (R25), with the commands that `vmadm` runs for it.

use migration_core::intent::End;
use migration_core::protocol::State;
use simnode::node::Zfs;

use crate::net::Fault;
use crate::world::{VM, World, finish};

/// Reprovisions the VM: its root is made of the image anew, what is delegated to it stays.
async fn reprovision(world: &World) {
    let zfs = |line: String| world.source.programs.zfs(&line);
    let (root, kept) = (format!("zones/{VM}"), "zones/kept");
    let image = world.source.get("origin", &root);
    world.source.verbs().halt(&VM.to_string(), 0).await.unwrap();
    zfs(format!("set zoned=off {root}/data"));
    zfs(format!("rename {root}/data {kept}"));
    zfs(format!("destroy -r {root}"));
    zfs(format!("clone {image} {root}"));
    zfs(format!("set quota=10737418240 {root}"));
    zfs(format!("rename {kept} {root}/data"));
    zfs(format!("set zoned=on {root}/data"));
    world.source.verbs().boot(&VM.to_string()).await.unwrap();
}

#[tokio::test(start_paused = true)] // R25
async fn a_vm_that_is_reprovisioned_between_two_syncs_arrives_as_it_is_now() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        reprovision(&world).await;
        world.write("after", 7, 20_000);
        assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
        finish(&world, 3).await;
        world.are_same();
        let (root, all) = (format!("zones/{VM}"), world.target.programs.node.datasets().unwrap());
        let file = |dataset: &str, path: &str| world.target.programs.node.file(&all, dataset, path);
        assert_eq!(file(&root, "root/motd"), None, "it is gone with the old root");
        assert!(file(&root, "root/after").is_some());
        assert!(file(&format!("{root}/data"), "motd").is_some(), "what is delegated stays");
    }
}

#[tokio::test(start_paused = true)] // R25
async fn a_vm_that_is_rolled_back_between_two_syncs_arrives_as_it_is_now() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        for syncs_since in 0..3 {
            let world = World::new(zfs).await;
            let root = format!("zones/{VM}");
            let mut number = 1..;
            let mut next = || number.next().unwrap();
            assert_eq!(world.send(End::Source, next()).await.unwrap(), State::Done);
            world.source.programs.zfs(&format!("snapshot {root}@people"));
            for byte in 0..syncs_since {
                world.write("undone", byte, 30_000);
                assert_eq!(world.send(End::Source, next()).await.unwrap(), State::Done);
            }
            world.source.verbs().halt(&VM.to_string(), 0).await.unwrap();
            world.source.programs.zfs(&format!("rollback -r {root}@people"));
            world.source.verbs().boot(&VM.to_string()).await.unwrap();
            let sent = world.send(End::Source, next()).await.unwrap();
            assert_eq!(sent, State::Done, "{zfs:?}, {syncs_since}");
            finish(&world, next()).await;
            world.are_same();
            let all = world.target.programs.node.datasets().unwrap();
            assert_eq!(world.target.programs.node.file(&all, &root, "root/undone"), None);
        }
    }
}

#[tokio::test(start_paused = true)] // R25
async fn a_disk_and_a_quota_that_are_resized_between_two_syncs_arrive_as_they_are_now() {
    let world = World::new(Zfs::Illumos).await; // zfs-fuse has no volumes
    let (root, disk) = (format!("zones/{VM}"), format!("zones/{VM}/disk0"));
    world.source.programs.zfs(&format!("create -V 1048576 {disk}"));
    world.source.programs.node.write_file(&disk, "data", &[1; 1 << 20]).unwrap();
    assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
    for (at, (volsize, quota)) in
        [(4 << 20, 20_u64 << 30), (2 << 20, 5 << 30)].into_iter().enumerate()
    {
        world.source.programs.zfs(&format!("set volsize={volsize} {disk}"));
        // The agent gives back the quota that it has found: a resize comes between syncs, not in one.
        world.done(End::Source, migration_core::protocol::What::RestoreQuota).await;
        world.source.programs.zfs(&format!("set quota={quota} {root}"));
        world.source.programs.node.write_file(&disk, "data", &vec![2; volsize]).unwrap();
        assert_eq!(world.send(End::Source, 2 + at as u32).await.unwrap(), State::Done);
    }
    finish(&world, 4).await;
    world.are_same();
    assert_eq!(world.target.get("volsize", &disk), (2_u64 << 20).to_string());
    assert_eq!(world.target.get("quota", &root), (5_u64 << 30).to_string());
}

#[tokio::test(start_paused = true)] // R10, R25
async fn a_quota_that_is_raised_while_it_is_lifted_for_a_sync_stays_raised() {
    for is_tight_again in [false, true] {
        let world = World::new(Zfs::Illumos).await;
        let root = format!("zones/{VM}");
        let cut = async || {
            world.net.fails(Fault::Cut(100_000));
            assert!(matches!(world.send(End::Source, 1).await.unwrap(), State::Failed { .. }));
        };
        world.tight_quota();
        cut().await;
        assert_eq!(world.source.get("quota", &root), "0", "it is lifted");
        world.write("before", 3, 300_000);
        let raised = if is_tight_again {
            world.tight_quota()
        } else {
            let raised = (30_u64 << 30).to_string();
            world.source.programs.zfs(&format!("set quota={raised} {root}"));
            raised
        };
        world.write("more", 3, 2000);
        cut().await;
        let now = world.source.get("quota", &root);
        assert_eq!(now == "0", is_tight_again, "{now}");
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        finish(&world, 2).await;
        world.are_same();
        for cn in [&world.source, &world.target] {
            assert_eq!(cn.get("quota", &root), raised);
        }
    }
}
