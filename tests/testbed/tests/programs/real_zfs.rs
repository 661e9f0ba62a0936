// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A migration on real ZFS: migration-service and the agents as they are, two zfs-fuse pools, real `zfs send`,
//! `zfs receive` and TCP, in real time. Skipped with a word where zfs-fuse does not run.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use migration_core::intent::End;
use sdc_clients::migrations::{Migration, Options};
use serde_json::json;
use testbed::explore::disk::{Damage, Disk, Network};
use testbed::explore::points::Points;
use testbed::explore::world::{Shape, World};
use testbed::moving::subject::VM;

const MIB: usize = 1 << 20;
/// MiB of files in the VM, by dataset.
const FILES: [(&str, usize); 3] = [("", 16), ("data", 112), ("data/more", 128)];
/// Both copies fit, and what the VM writes.
const POOL: u64 = 1 << 30;
/// The migration has ended by then, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// A connection for data, when it was made.
#[derive(Debug)]
struct Dialled {
    /// The number of the newest sync snapshot; 0 while an image is sent.
    number: usize,
    /// What happened to it.
    damage: Option<Damage>,
    /// The snapshots of the VM on both nodes.
    here: Vec<String>,
    there: Vec<String>,
}

fn snapshots(disk: &Disk) -> Vec<String> {
    let all = disk.zfs("list -H -o name -t snapshot").unwrap();
    all.lines().filter(|name| name.contains(VM)).map(str::to_owned).collect()
}

fn number(snapshot: &str) -> Option<usize> {
    snapshot.split_once("@vm-migration-")?.1.parse().ok()
}

/// Ten cuts and a flipped bit: in the image, in the first stream, in the next one, and in the last, with the VM
/// stopped. At each connection somebody makes two snapshots of the VM, with a MiB for each, while it runs.
fn network(source: &Arc<Disk>, target: &Arc<Disk>, seen: &Arc<Mutex<Vec<Dialled>>>) -> Network {
    let cuts =
        |all: &[usize]| -> VecDeque<Damage> { all.iter().copied().map(Damage::Cut).collect() };
    let mut last = cuts(&[30_000, 600_000]);
    last.insert(1, Damage::Flip(300_000));
    let mut planned =
        [cuts(&[2000]), cuts(&[10, 5 * MIB, 100 * MIB, 230 * MIB]), cuts(&[1, 5000, MIB]), last];
    let (weak, target, seen) = (Arc::downgrade(source), Arc::clone(target), Arc::clone(seen));
    Box::new(move || {
        let source = weak.upgrade()?;
        let number = snapshots(&source).iter().filter_map(|name| number(name)).max().unwrap_or(0);
        let stage = if source.is_written() { number.min(2) } else { 3 };
        let damage = planned[stage].pop_front();
        let mut seen = seen.lock().unwrap();
        if number > 0 && source.is_written() {
            for which in ["a", "b"] {
                let name = format!("people-{}{which}", seen.len());
                fs::write(source.path(&name), vec![7; MIB]).unwrap();
                source.zfs(&format!("snapshot -r zones/{VM}@{name}")).unwrap();
            }
        }
        let (here, there) = (snapshots(&source), snapshots(&target));
        seen.push(Dialled { number, damage, here, there });
        damage
    })
}

/// Fills the datasets of the VM with what a migration could get wrong.
fn fill(disk: &Disk) {
    disk.zfs(&format!("create zones/{VM}/data/more")).unwrap();
    for (of, set) in [("", "a:b=c"), ("/data", "compression=lzjb"), ("/data/more", "quota=300M")] {
        disk.zfs(&format!("set {set} zones/{VM}{of}")).unwrap();
    }
    let mut block = vec![0; MIB];
    File::open("/dev/urandom").unwrap().read_exact(&mut block).unwrap();
    for (dir, mib) in FILES {
        for n in 0..mib / 8 {
            let mut file = File::create(disk.path(dir).join(format!("file-{n}"))).unwrap();
            for at in 0..8_u64 {
                // No two blocks are the same.
                block[..8].copy_from_slice(&(8 * n as u64 + at).to_be_bytes());
                file.write_all(&block).unwrap();
            }
        }
    }
    let mode = disk.path("mode");
    fs::write(&mode, "x").unwrap();
    std::os::unix::fs::chown(&mode, Some(1234), Some(4321)).unwrap();
    fs::set_permissions(&mode, fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(&mode, disk.path("link")).unwrap();
    symlink("somewhere/else", disk.path("data/symlink")).unwrap();
    let hole = File::create(disk.path("data/more/hole")).unwrap();
    hole.set_len(64 << 20).unwrap();
    hole.write_all_at(b"the end", 60 << 20).unwrap();
    disk.zfs(&format!("snapshot -r zones/{VM}@people-before")).unwrap();
}

/// The VM writes to all its datasets: it rewrites a file, and a log grows and is cut again.
fn writes(disk: &Disk) -> impl FnMut() + Send + 'static {
    let paths = FILES.map(|(dir, _)| disk.path(dir));
    let mut line = 0_u64;
    move || {
        for path in &paths {
            line += 1;
            let text = format!("{line}\n").repeat(2000);
            fs::write(path.join(format!("log-{}", line % 7)), text).unwrap();
            let file =
                File::options().write(true).create(true).truncate(false).open(path.join("db"));
            file.unwrap().write_all_at(&line.to_be_bytes(), line % 4 * 131_072).unwrap();
        }
    }
}

/// What is to be the same of a file: kind and mode, owner, links, length, whether it has holes.
type About = (u32, (u32, u32), u64, u64, bool);

fn tree(top: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, About>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        let len = if about.is_dir() { 0 } else { about.len() };
        let has_holes = about.blocks() * 512 < len / 2;
        let owner = (about.uid(), about.gid());
        let name = path.strip_prefix(top).unwrap().to_owned();
        found.insert(name, (about.mode(), owner, about.nlink(), len, has_holes));
        if about.is_dir() {
            tree(top, &path, found);
        }
    }
}

/// Compares the files of both copies; returns the bytes of those that were compared.
fn compare_files(source: &Disk, target: &Disk) -> usize {
    let [ours, theirs] = [source, target].map(|disk| {
        let mut found = BTreeMap::new();
        tree(&disk.path(""), &disk.path(""), &mut found);
        found
    });
    assert_eq!(ours, theirs);
    let mut bytes = 0;
    for name in ours.keys() {
        let [ours, theirs] = [source, target].map(|disk| disk.path("").join(name));
        if ours.is_symlink() {
            assert_eq!(fs::read_link(&ours).unwrap(), fs::read_link(&theirs).unwrap());
        } else if ours.is_file() {
            let (ours, theirs) = (fs::read(&ours).unwrap(), fs::read(&theirs).unwrap());
            assert!(ours == theirs, "{} has other contents", name.display());
            bytes += ours.len();
        }
    }
    bytes
}

/// People's snapshots with their GUIDs, and what people have set. The source may keep a sync's snapshot that was busy
/// when it was to go: it is named, and goes with the copy.
fn state(disk: &Disk) -> Vec<String> {
    let root = format!("zones/{VM}");
    let guids = disk.zfs(&format!("get -Hp -r -o name,property,value guid {root}")).unwrap();
    let is_peoples = |line: &&str| line.contains('@') && !line.contains("@vm-migration-");
    let guids = guids.lines().filter(is_peoples);
    let set = disk.zfs(&format!("get -Hp -r -o name,property,value -s local,received all {root}"));
    let set = set.unwrap();
    let set = set.lines().filter(|line| !line.contains('@') && !line.ends_with("\tnone"));
    let mut all: Vec<String> = guids.chain(set).map(str::to_owned).collect();
    all.sort();
    all
}

/// Waits until nothing of the migration runs; returns its record, if there still is one.
async fn rested(world: &World) -> Option<Migration> {
    let rested = world.rested(Duration::from_millis(100));
    tokio::time::timeout(PATIENCE, rested).await.expect("it does not end").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M44 M47 R2 R3 R5 R8 R9 R10 R23
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn a_vm_moves_on_real_zfs_while_it_writes_and_the_network_is_cut_ten_times() {
    if let Some(why) = rig::why_not() {
        eprintln!("skipped: {why}");
        return;
    }
    let disks: Vec<Arc<Disk>> = rig::start(2, POOL)
        .unwrap()
        .into_iter()
        .map(|cn| Arc::new(Disk::new(cn).unwrap()))
        .collect();
    let (source, target) = (Arc::clone(&disks[0]), Arc::clone(&disks[1]));
    let dir = testbed::place::place().unwrap();
    let (points, on) = (Points::default(), [&source, &target].map(|disk| Some(Arc::clone(disk))));
    let world = World::on(dir.path(), &points, Shape::default(), on).await.unwrap();
    let client = world.migrations().unwrap();
    client.set(None, &one("zfs_send_mbps_limit", 100_000)).await.unwrap();
    fill(&source);
    let seen = Arc::default();
    source.set_network(network(&source, &target, &seen));
    source.runs(writes(&source));

    let to = Some(world.cn(End::Target).uuid.to_string());
    let options =
        Options { override_server_uuid: to, migration_automatic: true, ..Options::default() };
    client.act(VM, "begin", &options).await.unwrap();
    let mut record = rested(&world).await.unwrap();
    // A stream that is cut again behind the stop undoes the switch: the VM runs again, and the next word is a person's.
    for _ in 0..3 {
        if record.state == "failed" {
            client.act(VM, "switch", &Options::default()).await.unwrap();
            record = rested(&world).await.unwrap();
        }
    }
    let told = (&record.state, &record.error, &record.progress_history);
    assert_eq!(record.state, "successful", "{told:?}\n{}", world.judge.notes().join("\n"));
    let is_fine =
        |it: &sdc_clients::migrations::Progress| it.state == "successful" || it.phase == "switch";
    assert!(record.progress_history.iter().all(is_fine), "{told:?}");
    assert!(!source.is_written());

    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let is_cut = |it: &&Dialled| matches!(it.damage, Some(Damage::Cut(_)));
    assert_eq!(seen.iter().filter(is_cut).count(), 10, "{seen:#?}");
    let sync = |number: usize| format!("zones/{VM}@vm-migration-{number}");
    for (cut, next) in seen.iter().zip(&seen[1..]).filter(|(it, _)| it.damage.is_some()) {
        let has_base = cut.number < 2 || next.there.contains(&sync(cut.number - 1));
        assert!(has_base, "what both had is lost: {cut:?}, {next:?}");
        if matches!(cut.damage, Some(Damage::Flip(_))) {
            let root = format!("zones/{VM}@");
            let is_lacking = |it: &&String| it.starts_with(&root) && !cut.there.contains(it);
            assert!(cut.here.iter().filter(is_lacking).count() >= 3, "{cut:?}");
            assert_eq!(cut.there, next.there, "something of the stream was taken");
        }
    }

    // What is delegated stays unmounted until the zone boots, so it is lent to the node to be read
    // (here, no zone runs at the source: its datasets are not zoned).
    target.zfs(&format!("inherit zoned zones/{VM}/data")).unwrap();
    for name in target.zfs(&format!("list -H -o name -r zones/{VM}/data")).unwrap().lines() {
        target.zfs(&format!("mount {name}")).unwrap();
    }
    let bytes = compare_files(&source, &target);
    assert!(bytes >= 256 * MIB, "{bytes}");
    assert_eq!(state(&source), state(&target));
    let get = |property: &str, of: &str| {
        let line = format!("get -Hp -o value {property} zones/{VM}{of}");
        target.zfs(&line).unwrap().trim().to_owned()
    };
    assert_eq!(get("quota", ""), (10_u64 << 30).to_string());
    assert_eq!(get("quota", "/data/more"), (300_u64 << 20).to_string());
    assert!(get("origin", "").ends_with("@final"), "{}", get("origin", ""));

    client.act(VM, "finalize", &Options::default()).await.unwrap();
    assert!(rested(&world).await.is_none());
    world.check_records(End::Target).await;
    assert_eq!(world.judge.faults(), Vec::<String>::new());
    let left = source.zfs("list -H -o name -t all").unwrap();
    assert!(!left.contains(VM), "{left}\n{}", world.judge.notes().join("\n"));
    assert_eq!(snapshots(&target).iter().filter_map(|name| number(name)).count(), 0);
    world.end().await;
}

fn one(name: &str, value: u32) -> serde_json::Map<String, serde_json::Value> {
    json!({ name: value }).as_object().cloned().unwrap()
}
