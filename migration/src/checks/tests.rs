// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each obstacle alone, and all of them at once.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;
use serde_json::Value;

use super::*;

fn node() -> Node {
    Node {
        agent_version: Some(1),
        cpu: Some("GenuineIntel 6-85".into()),
        platform: Some("20260101T000000Z".into()),
        clock_ms: Some(-300),
        can_resume: true,
        free_bytes: Some(100),
        missing_nic_tags: BTreeSet::new(),
        next_reboot: None,
        has_copy: false,
    }
}

fn known() -> Known {
    Known {
        state: "running".into(),
        is_core: false,
        is_nat: false,
        pci_devices: 0,
        odd_nics: Vec::new(),
        used_bytes: 100,
        has_image: true,
        source: Some(node()),
        target: Some(node()),
    }
}

const NOW: Time = Time::from_millis(1_000);

/// What is found once this was changed.
fn found(change: impl Fn(&mut Known, &mut Node)) -> Vec<String> {
    let mut known = known();
    let mut target = node();
    change(&mut known, &mut target);
    known.target = known.target.and(Some(target));
    let Findings { obstacles, warnings } = check(&known, false, NOW);
    let warnings = warnings.iter().map(|it| format!("warning: {it}"));
    obstacles.iter().map(Obstacle::to_string).chain(warnings).collect()
}

#[test] // R24
fn each_obstacle_is_found_alone() {
    type Change = fn(&mut Known, &mut Node);
    let none: &[&str] = &[];
    let rows: [(Change, &[&str]); 24] = [
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
        (|vm, _| vm.pci_devices = 2, &["The instance has 2 PCI devices passed through"]),
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
        (|_, to| to.has_copy = true, &["The target's node has a copy of the instance already"]),
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

#[test] // R24
fn all_obstacles_are_told_at_once() {
    let all = found(|vm, to| {
        (vm.state, vm.is_core, vm.pci_devices) = ("failed".into(), true, 1);
        vm.source.as_mut().unwrap().agent_version = None;
        (to.cpu, to.free_bytes, to.has_copy, to.clock_ms) = (None, None, true, Some(i64::MIN));
    });
    assert_eq!(all.len(), 8, "{all:?}");
}

#[test] // R24
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
