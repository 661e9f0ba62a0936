// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use super::ramdisk::{AGENTS_SMF, SITE};
use super::smf::{svcadm, svccfg, svcprop, svcs};
use super::{boot::Boot, lofs};
use crate::create::CreateOptions;
use crate::node::Node;
use crate::places::NodeKind;

const AGENT: &str = "svc:/smartdc/agent/it:default";

fn node(kind: NodeKind) -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { vms: 12, kind, ..CreateOptions::new(dir.path().join("cn")) };
    (dir, Node::create(&options).unwrap())
}

/// A manifest of `smartdc/agent/it` with these elements after its instance.
fn manifest(enabled: bool, exec: &str, more: &str) -> String {
    format!(
        "<service_bundle type=\"manifest\" name=\"it\"><service name=\"smartdc/agent/it\" type=\"service\" \
         version=\"1\"><create_default_instance enabled=\"{enabled}\"/>{more}<exec_method type=\"method\" \
         name=\"start\" exec=\"{exec}\" timeout_seconds=\"30\"/></service></service_bundle>"
    )
}

fn booted(node: &Node) -> Boot {
    node.boot(|_| Ok(true)).unwrap()
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|it| (*it).to_owned()).collect()
}

fn at(boot: &Boot, fmri: &str) -> Option<usize> {
    boot.started.iter().position(|it| it == fmri)
}

#[test]
fn a_boot_knows_what_lies_in_a_kept_place_that_is_imported() {
    for kind in NodeKind::ALL {
        for (place, is_there) in [
            ("/var/svc/manifest/site/it.xml", true),
            ("/var/svc/manifest/application/it.xml", true),
            ("/opt/custom/smf/it.xml", true),
            ("/opt/smartdc/agents/smf/it.xml", kind.is_triton()),
            ("/opt/custom/smf/deeper/it.xml", false),
            ("/opt/custom/smf/it.txt", false),
            ("/opt/smartdc/agents/lib/node_modules/it/smf/it.xml", false),
            ("/lib/svc/manifest/site/it.xml", false),
            ("/etc/it.xml", false),
        ] {
            let (_dir, node) = node(kind);
            node.put(place, manifest(true, "/it", "").as_bytes(), 0o444).unwrap();
            let boot = booted(&node);
            assert_eq!(at(&boot, AGENT).is_some(), is_there, "{place} on {kind:?}");
            assert_eq!(node.instance(AGENT).unwrap().is_some(), is_there, "{place} on {kind:?}");
        }
    }
}

#[test]
fn what_was_imported_enabled_or_set_by_hand_is_gone_after_a_boot() {
    let (_dir, node) = node(NodeKind::Compute);
    let place = "/opt/smartdc/agents/lib/node_modules/it/smf/it.xml";
    node.put(place, manifest(false, "/it", "").as_bytes(), 0o444).unwrap();
    let state = |of: &str| svcs(&node, &words(&["-H", "-o", "state", of])).unwrap();
    svccfg(&node, &words(&["import", place])).unwrap();
    assert_eq!(state("it"), "disabled\n");
    svcadm(&node, &words(&["enable", "-s", "it"])).unwrap();
    assert_eq!(state(AGENT), "online\n");
    let set = ["-s", "vminfod", "setprop", "start/exec", "=", "/opt/ours start"];
    svccfg(&node, &words(&set)).unwrap();
    let exec = || svcprop(&node, &words(&["-p", "start/exec", "vminfod"])).unwrap();
    assert_eq!(exec(), "/opt/ours\\ start\n");
    svcadm(&node, &words(&["disable", "vmadmd"])).unwrap();
    booted(&node);
    assert!(svcs(&node, &words(&["-H", "-o", "state", "it"])).is_err());
    assert_eq!(exec(), "/usr/vm/smf/system-vminfod\\ start\n");
    assert_eq!(state("vmadmd"), "online\n");
}

#[test]
fn a_lasting_stop_is_the_profile_of_a_kept_place() {
    let (_dir, node) = node(NodeKind::Compute);
    node.put("/opt/smartdc/agents/smf/it.xml", manifest(true, "/it", "").as_bytes(), 0o444)
        .unwrap();
    assert!(at(&booted(&node), AGENT).is_some());
    svcadm(&node, &words(&["disable", "it"])).unwrap();
    assert!(at(&booted(&node), AGENT).is_some(), "it runs again after a boot");
    let profile = "<service_bundle type=\"profile\" name=\"site\"><service name=\"smartdc/agent/it\" \
                   type=\"service\" version=\"1\"><instance name=\"default\" enabled=\"false\"/></service>\
                   </service_bundle>";
    node.put("/etc/svc/profile/site.xml", profile.as_bytes(), 0o444).unwrap();
    assert!(at(&booted(&node), AGENT).is_some(), "that one is in the ramdisk");
    node.put("/var/svc/profile/site.xml", profile.as_bytes(), 0o444).unwrap();
    assert_eq!(at(&booted(&node), AGENT), None);
}

#[test]
fn a_later_manifest_of_a_service_wins_and_a_broken_one_is_passed_over() {
    let (_dir, node) = node(NodeKind::Compute);
    for (place, exec) in [("/var/svc/manifest/site/it.xml", "/a"), ("/opt/custom/smf/it.xml", "/b")]
    {
        node.put(place, manifest(true, exec, "").as_bytes(), 0o444).unwrap();
    }
    node.put("/opt/custom/smf/half.xml", b"<service_bundle type=\"manif", 0o444).unwrap();
    let boot = booted(&node);
    assert_eq!(svcprop(&node, &words(&["-p", "start/exec", "it"])).unwrap(), "/b\n");
    assert_eq!(boot.refused.len(), 1, "{:?}", boot.refused);
}

#[test]
fn zones_boot_as_soon_as_nothing_that_is_enabled_orders_them() {
    let dependent = |grouping: &str, on: &str| {
        format!(
            "<dependent name=\"of_it\" grouping=\"{grouping}\" restart_on=\"none\"><service_fmri \
             value=\"svc:/{on}\"/></dependent>"
        )
    };
    let before_zones = |more: &str, enabled: bool, well: bool| {
        let (_dir, node) = node(NodeKind::Compute);
        let text = manifest(enabled, "/it", more);
        node.put("/opt/custom/smf/it.xml", text.as_bytes(), 0o444).unwrap();
        let boot = node.boot(|start| Ok(well || start.fmri != AGENT)).unwrap();
        let zones = at(&boot, "svc:/system/zones:default");
        assert!(zones.is_none() || !boot.zones.is_empty());
        (at(&boot, AGENT) < zones && at(&boot, AGENT).is_some(), zones.is_some())
    };
    assert_eq!(before_zones("", true, true), (false, true));
    let optional = dependent("optional_all", "system/zones:default");
    assert_eq!(before_zones(&optional, true, true), (true, true));
    // What is disabled or does not come up holds nothing, where it is optional.
    assert_eq!(before_zones(&optional, true, false), (true, true));
    assert_eq!(before_zones(&optional, false, true), (false, true));
    let required = dependent("require_all", "system/zones:default");
    assert_eq!(before_zones(&required, true, false), (false, false));
}

#[test]
fn zones_without_autoboot_and_the_ramdisk_do_not_come_back() {
    let (_dir, mut node) = node(NodeKind::Compute);
    let autoboots = |name: &str| {
        let config = node.zone_config(name).unwrap();
        match node.zone(name).unwrap().brand.as_str() {
            "kvm" => config.value("attr", "vm-autoboot") == Some("true"),
            _ => config.get("autoboot") == Some("true"),
        }
    };
    let all: Vec<String> = node.zones().unwrap().iter().map(|it| it.zonename.clone()).collect();
    let wanted: Vec<bool> = all.iter().map(|name| autoboots(name)).collect();
    for (place, text) in [("/etc/vminfod.json", "a"), ("/root/.sdc-migrate/key", "b")] {
        node.put(place, text.as_bytes(), 0o600).unwrap();
    }
    for place in ["/var/db/it", "/opt/it", "/etc/zones/it.xml", "/var/run/it", "/tmp/it"] {
        node.put(place, b"c", 0o600).unwrap();
    }
    node.put_image("/usr/vm/sbin/vminfod", b"the platform's", 0o555).unwrap();
    let refused = node.put("/usr/vm/sbin/kvmd", b"ours", 0o555).unwrap_err().to_string();
    assert!(refused.contains("Read-only file system"), "{refused}");
    node.assign_platform("20261101T000000Z").unwrap();
    assert_eq!(node.running_platform().unwrap(), "20260601T000000Z");
    let ours = "/opt/custom/hub/bin/vminfod";
    node.put(ours, b"ours", 0o555).unwrap();
    lofs::mount(&node, &words(&["-F", "lofs", ours, "/usr/vm/sbin/vminfod"])).unwrap();
    assert_eq!(node.seen("/usr/vm/sbin/vminfod").unwrap(), ours);
    // A mount needs a file to be mounted on.
    let mount = ["-F", "lofs", ours, "/usr/vm/sbin/kvmd"];
    assert!(lofs::mount(&node, &words(&mount)).is_err());

    booted(&node);
    let running: Vec<bool> =
        all.iter().map(|name| node.zone(name).unwrap().state.is_active()).collect();
    assert_eq!(running, wanted);
    let is_there = |place: &str| node.path(place).exists();
    assert!(["/var/db/it", "/opt/it", "/etc/zones/it.xml"].iter().all(|it| is_there(it)));
    for gone in ["/etc/vminfod.json", "/root/.sdc-migrate/key", "/var/run/it", "/tmp/it"] {
        assert!(!is_there(gone), "{gone}");
    }
    assert_eq!(node.running_platform().unwrap(), "20261101T000000Z");
    assert_eq!(node.seen("/usr/vm/sbin/vminfod").unwrap(), "/usr/vm/sbin/vminfod");
    assert!(is_there("/usr/vm/sbin/vminfod") && is_there(SITE) && is_there(AGENTS_SMF));
}
