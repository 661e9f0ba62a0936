// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each obstacle alone, and all of them at once.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

fn node() -> Node {
    Node {
        agent_version: Some(1),
        is_unproved: false,
        is_revoked: false,
        lacks_address: false,
        cpu: Some("GenuineIntel 6-85".into()),
        platform: Some("20260101T000000Z".into()),
        clock_ms: Some(-300),
        can_resume: true,
        pool: Some("zones".into()),
        lacks_limits: false,
        encrypted: Some(false),
        free_bytes: Some(100),
        missing_nic_tags: BTreeSet::new(),
        next_reboot: None,
        vm_agent: VmAgent::Ours,
        has_copy: false,
        in_the_way: Vec::new(),
    }
}

const UUID: &str = "0c000000-0000-4000-8000-000000000001";

/// An object with further keys.
fn object(fields: Value) -> Map<String, Value> {
    let mut vm = json!({
        "uuid": UUID, "zonename": UUID, "zpool": "zones", "zfs_filesystem": format!("zones/{UUID}"),
        "brand": "joyent", "image_uuid": UUID,
    });
    vm.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    vm.as_object().unwrap().clone()
}

fn known() -> Situation {
    Situation {
        state: "running".into(),
        is_core: false,
        is_nat: false,
        pci_devices: 0,
        lacks_image: false,
        object: Some(object(json!({}))),
        odd_nics: Vec::new(),
        used_bytes: 100,
        has_image: true,
        source: Some(node()),
        target: Some(node()),
    }
}

const NOW: Time = Time::from_millis(1_000);

/// What is found once this was changed.
fn found(change: impl Fn(&mut Situation, &mut Node)) -> Vec<String> {
    let mut known = known();
    let mut target = node();
    change(&mut known, &mut target);
    known.target = known.target.and(Some(target));
    let Findings { obstacles, warnings } = check(&known, false, NOW);
    let warnings = warnings.iter().map(|it| format!("warning: {it}"));
    obstacles.iter().map(Obstacle::to_string).chain(warnings).collect()
}

#[test] // R24 M193
fn each_obstacle_is_found_alone() {
    type Change = fn(&mut Situation, &mut Node);
    let none: &[&str] = &[];
    let rows: [(Change, &[&str]); 33] = [
        (|_, _| {}, none),
        (|vm, _| vm.state = "stopped".into(), none),
        (|vm, _| vm.state = "destroyed".into(), &["Cannot migrate an instance in state destroyed"]),
        (|vm, _| vm.state = "failed".into(), &["Cannot migrate an instance in state failed"]),
        (
            |vm, _| vm.state = "provisioning".into(),
            &["Cannot call migrate for a VM that has not been provisioned yet"],
        ),
        (|vm, _| vm.is_core = true, &["Cannot migrate a core instance"]),
        (|vm, _| (vm.is_core, vm.is_nat) = (true, true), none),
        (
            |vm, _| (vm.pci_devices, vm.object, vm.source) = (2, None, None),
            &["The instance has 2 PCI devices passed through"],
        ),
        // The node knows better than VMAPI.
        (|vm, _| vm.pci_devices = 2, none),
        (
            |vm, _| vm.object = None,
            &["The object of the instance of the source's node is not known"],
        ),
        (
            |vm, _| vm.source.as_mut().unwrap().pool = Some("tank".into()),
            &[
                "The source's node keeps its instances in the pool tank, and the instance is in zones",
                "The target's node keeps its instances in the pool zones, and the instance is in tank",
            ],
        ),
        (
            |vm, _| vm.odd_nics = vec!["90:b8:d0:00:00:01".into()],
            &["The NIC 90:b8:d0:00:00:01 has no network or no address in NAPI"],
        ),
        (
            |vm, _| vm.source.as_mut().unwrap().agent_version = None,
            &["migration-agent does not answer on the source's node"],
        ),
        (
            |_, to| to.agent_version = None,
            &["migration-agent does not answer on the target's node"],
        ),
        (
            |_, to| (to.agent_version, to.lacks_address) = (None, true),
            &["The sysinfo of the target's node has no address on the admin network: \
               neither Admin IP nor a NIC with the tag that Admin NIC Tag names"],
        ),
        (
            |_, to| (to.agent_version, to.is_unproved) = (None, true),
            &["The program on the target's node cannot prove that it is migration-agent: \
               its version differs, or its certificate is not valid"],
        ),
        (
            |_, to| to.is_revoked = true,
            &["The key of migration-agent on the target's node was revoked"],
        ),
        (
            |vm, _| vm.source.as_mut().unwrap().is_revoked = true,
            &["The key of migration-agent on the source's node was revoked"],
        ),
        (
            |_, to| to.agent_version = Some(2),
            &["migration-agent speaks version 1 on the source's node and 2 on the target's"],
        ),
        (
            |_, to| to.cpu = Some("AuthenticAMD 25-1".into()),
            &["The target's CPU is of another kind: AuthenticAMD 25-1, not GenuineIntel 6-85"],
        ),
        (|_, to| to.cpu = None, &["The CPU of the target's node is not known"]),
        (
            |_, to| to.platform = Some("20251231T235959Z".into()),
            &["The target's platform 20251231T235959Z is older than 20260101T000000Z"],
        ),
        (|_, to| to.platform = Some("20260201T000000Z".into()), none),
        (
            |vm, _| vm.source.as_mut().unwrap().platform = None,
            &["The platform of the source's node is not known"],
        ),
        (|_, to| to.clock_ms = Some(3_600_000), &["The clock of the target's node is 3600 s off"]),
        (
            |vm, _| vm.source.as_mut().unwrap().clock_ms = None,
            &["The clock of the source's node is not known"],
        ),
        (
            |_, to| to.free_bytes = Some(99),
            &["The target's pool has 99 bytes free, and the instance uses 100"],
        ),
        (|_, to| to.free_bytes = None, &["The free space of the target's node is not known"]),
        (
            |_, to| to.missing_nic_tags = ["b".into(), "a".into()].into(),
            &["The target's node lacks the NIC tags a, b"],
        ),
        (
            |_, to| to.lacks_limits = true,
            &[
                "The pool of the target's node has no limits of filesystems and snapshots, as the instance has",
            ],
        ),
        (|_, to| to.has_copy = true, &["The target's node has a copy of the instance already"]),
        (
            |_, to| to.in_the_way = vec!["zones/a".into(), "zones/cores/a".into()],
            &[
                "The target's node has zones/a, zones/cores/a, which no migration has made: rename or destroy it there",
            ],
        ),
        (|vm, _| vm.target = None, none),
    ];
    for (at, (change, want)) in rows.iter().enumerate() {
        assert_eq!(found(change), *want, "row {at}");
    }
    assert_eq!(check(&known(), true, NOW).obstacles, [Obstacle::SameNode]);
}

#[test] // R22, R23
fn warnings_do_not_stop_a_begin() {
    let rows = found(|vm, to| {
        vm.has_image = false;
        to.can_resume = false;
        vm.source.as_mut().unwrap().next_reboot = Some(Time::from_millis(5_000));
        to.next_reboot = Some(Time::from_millis(500)); // was
    });
    assert_eq!(
        rows,
        [
            "warning: IMGAPI does not have the image: it is copied from the source's node",
            "warning: The source's node is to be rebooted at 1970-01-01T00:00:05.000Z",
            "warning: The pool of the target's node cannot resume a stream that was cut",
        ]
    );
}

#[test] // M76
fn what_does_not_move_is_told_by_its_name() {
    let data = format!("zones/{UUID}/data");
    let disk = |name: &str| {
        json!({"zfs_filesystem": name, "path": "/p", "model": "virtio", "size": 1,
            "image_uuid": UUID})
    };
    let own = |at: u32| disk(&format!("zones/{UUID}/disk{at}"));
    let none: &[&str] = &[];
    for (fields, want) in [
        (json!({ "datasets": [data] }), none),
        (
            json!({"datasets": [data, "zones/bulk"]}),
            &["The delegated dataset zones/bulk does not move"],
        ),
        (json!({"datasets": ["tank/x"]}), &["The delegated dataset tank/x does not move"]),
        (json!({"image_uuid": null}), &["The instance has no image_uuid"]),
        (json!({"zonename": "web"}), &["The zone's name \"web\" is not the instance's uuid"]),
        (
            json!({"disks": [{"path": "/dev/dsk/c1t0d0s0"}]}),
            &["The device /dev/dsk/c1t0d0s0 of the node does not move"],
        ),
        (json!({"brand": "bhyve", "disks": [own(0), own(1)]}), none),
        (
            json!({"brand": "bhyve", "disks": [own(0), disk("zones/dump")]}),
            &[
                "The disk zones/dump does not move: the target has zones/0c000000-0000-4000-8000-000000000001/disk1 in its place",
            ],
        ),
        (
            json!({"brand": "kvm", "disks": [{"path": "/dev/rdsk/c1t1d0", "model": "virtio", "image_uuid": UUID}]}),
            &["The device /dev/rdsk/c1t1d0 of the node does not move"],
        ),
        (
            json!({"brand": "bhyve", "disks": [
                own(0), {"media": "cdrom", "path": "/opt/x.iso", "model": "ahci"},
                {"media": "cdrom", "path": format!("/zones/{UUID}/root/x.iso"), "model": "ahci"},
            ]}),
            &["warning: The CD-ROM /opt/x.iso has to be on the target's node too"],
        ),
        (
            json!({"filesystems": [
                {"source": "/opt/x", "target": "/x", "type": "lofs"}, {"source": "h:/y", "target": "/y", "type": "nfs"},
                {"source": format!("/zones/{UUID}/volumes/v"), "target": "/v", "type": "lofs"},
            ]}),
            &[
                "warning: The mount /x needs /opt/x on the target's node too",
                "warning: The mount /y needs h:/y on the target's node too",
            ],
        ),
        (
            json!({"filesystems": [
                {"source": "tank/x", "target": "/x", "type": "zfs"},
                {"source": "/dev/dsk/x", "raw": "/dev/rdsk/x", "target": "/y", "type": "ufs"},
            ]}),
            &[
                "The mount /x of tank/x does not move",
                "The device /dev/rdsk/x of the node does not move",
            ],
        ),
        (
            json!({"brand": "kvm", "disks": [{"path": "/p", "model": "ide", "image_uuid": UUID,
                    "zfs_filesystem": format!("zones/{UUID}-disk0")}],
                "filesystems": [{"source": "/a", "target": "/b", "type": "lofs"}]}),
            &["The mount /b of /a does not move"],
        ),
        (
            json!({
                "routes": {"10.2.2.0/24": "nics[0]", "10.2.3.1": "10.0.0.1", "10.2.4.0/24": "macs[m]"},
                "nics": [{"mac": "m", "nic_tag": "a", "ip": "10.0.0.9", "netmask": "255.0.0.0"}],
            }),
            none,
        ),
        (
            json!({
                "routes": {"10.2.2.0/24": "nics[1]", "default": "10.0.0.1", "10.2.4.0/24": "macs[m]"},
                "nics": [{"mac": "m", "nic_tag": "a", "ip": "dhcp"}],
            }),
            &[
                "vmadm rejects the instance's route to \"10.2.2.0/24\", and so every update of it",
                "vmadm rejects the instance's route to \"default\", and so every update of it",
                "vmadm rejects the instance's route to \"10.2.4.0/24\", and so every update of it",
            ],
        ),
        (json!({"app_svc_dependent": true}), &["warning: app_svc_dependent is not carried"]),
    ] {
        let rows = found(|vm, _| vm.object = Some(object(fields.clone())));
        assert_eq!(rows, want, "{fields}");
    }
}

#[test] // CN15
fn a_guest_whose_first_disk_has_no_image_does_not_move() {
    let own = |at: u32| format!("zones/{UUID}/disk{at}");
    let made = |at: u32| json!({"zfs_filesystem": own(at), "model": "virtio", "size": 1});
    let of_image =
        |at: u32| json!({"zfs_filesystem": own(at), "model": "virtio", "image_uuid": UUID});
    let cdrom = json!({"media": "cdrom", "path": format!("/zones/{UUID}/x.iso"), "model": "ahci"});
    let why = "The instance's first disk has no image, and CNAPI creates no guest without one";
    for (disks, lacks) in [
        (json!([made(0)]), true),
        (json!([made(0), of_image(1)]), true),
        (json!([cdrom, of_image(0)]), true),
        (json!([]), true),
        (json!([of_image(0), made(1)]), false),
    ] {
        let vm = object(json!({"brand": "bhyve", "disks": disks}));
        assert_eq!(object::lacks_image(&vm), lacks, "{disks}");
        let told = found(|known, _| known.object = Some(vm.clone()));
        assert_eq!(told.contains(&why.to_owned()), lacks, "{disks}: {told:?}");
    }
    assert!(!object::lacks_image(&object(json!({"disks": [made(0)]}))), "a zone");
    let by_vmapi = found(|vm, _| (vm.lacks_image, vm.object, vm.source) = (true, None, None));
    assert_eq!(by_vmapi, [why]);
}

#[test] // R24 M193
fn all_obstacles_are_told_at_once() {
    let all = found(|vm, to| {
        (vm.state, vm.is_core) = ("failed".into(), true);
        vm.object = Some(object(json!({"pci_devices": [{"path": "/devices/ppt0"}]})));
        vm.source.as_mut().unwrap().agent_version = None;
        (to.cpu, to.free_bytes, to.has_copy, to.clock_ms) = (None, None, true, Some(i64::MIN));
    });
    assert_eq!(all.len(), 8, "{all:?}");
}

#[test] // R24 M193
fn sentences_and_statuses_are_those_of_the_deployed_service_where_it_has_any() {
    let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
    let reply = |id: &str| {
        let line = text.lines().find(|line| line.contains(&format!("\"{id}\""))).unwrap();
        let response = serde_json::from_str::<Value>(line).unwrap()["response"].clone();
        let body = |key: &str| response["body"][key].as_str().unwrap().to_owned();
        (response["status"].as_u64().unwrap(), body("code"), body("message"))
    };
    for (id, obstacle) in
        [("m-migrate-errors-25", Obstacle::Core), ("m-migrate-errors-27", Obstacle::Unallocated)]
    {
        let ours = (obstacle.status().into(), obstacle.code().into(), obstacle.to_string());
        assert_eq!(ours, reply(id));
    }
}

#[test] // M94
fn an_encrypted_pool_is_not_exchanged_for_a_plain_one() {
    let (mut from, mut to) = (node(), node());
    from.encrypted = Some(true);
    assert_eq!(between(&from, &to, 0, NOW).obstacles, [Obstacle::PlainTarget]);
    to.encrypted = Some(true);
    assert_eq!(between(&from, &to, 0, NOW).obstacles, []);
    from.encrypted = Some(false);
    assert_eq!(between(&from, &to, 0, NOW).obstacles, []);
    let known = Situation { source: Some(from), target: Some(to), ..known() };
    assert_eq!(check(&known, false, NOW).warnings, [Warning::EncryptedTarget]);
}

#[test] // M195
fn a_vm_agent_that_reports_hidden_vms_destroyed_is_an_obstacle_that_an_operator_may_force() {
    for (vm_agent, says) in [
        (VmAgent::Deployed, "is the deployed one"),
        (VmAgent::Unknown, "svcprop -p start/exec vm-agent"),
    ] {
        for end in [End::Source, End::Target] {
            let mut known = known();
            node_of(&mut known, end).vm_agent = vm_agent;
            let mut found = check(&known, false, NOW);
            let texts: Vec<String> = found.obstacles.iter().map(Obstacle::to_string).collect();
            let [text] = &texts[..] else { panic!("{texts:?}") };
            assert!(text.starts_with(&format!("vm-agent on the {end}'s node ")), "{text}");
            assert!(text.contains(says) && text.contains("--force"), "{text}");
            assert!(found.force());
            assert_eq!((found.obstacles, found.warnings), (vec![], vec![Warning::VmAgent(end)]));
            // Of a node whose agent does not answer, that is said alone.
            node_of(&mut known, end).agent_version = None;
            let found = check(&known, false, NOW);
            assert_eq!(found.obstacles, [Obstacle::NoAgent(end)]);
        }
    }
    // It takes nothing else upon himself.
    let mut found = check(&Situation { is_core: true, ..known() }, false, NOW);
    assert!(!found.force());
    assert_eq!(found.obstacles, [Obstacle::Core]);
}

fn node_of(known: &mut Situation, end: End) -> &mut Node {
    let node = if end == End::Source { &mut known.source } else { &mut known.target };
    node.as_mut().unwrap()
}
