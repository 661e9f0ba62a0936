// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! The node kept in this crate, loaded whole and composed again and again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::commands::{CommandError, Commands, Follow, Output, Tool};
use crate::load::{self, Ctx, Node};
use crate::root::Root;
use crate::word::word;

struct Kept(PathBuf);

impl Commands for Kept {
    fn run<'a>(
        &'a self,
        tool: Tool,
        _: Vec<String>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        let file = match tool {
            Tool::Zoneadm => "zoneadm-list.txt",
            Tool::Zfs => "zfs-list.txt",
            Tool::Kstat | Tool::Sysevent => "zoneinfo.json",
        };
        let stdout = std::fs::read(self.0.join(file)).unwrap();
        Box::pin(async move { Ok(Output { status: 0, stdout, stderr: Vec::new() }) })
    }

    fn follow(&self, _: Tool, _: Vec<String>) -> Result<Follow, CommandError> {
        panic!("nothing follows here")
    }
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cn-basic")
}

async fn node() -> Node {
    let ctx =
        Ctx::new(Root::new(kept().join("root")), std::sync::Arc::new(Kept(kept().join("cmd"))));
    load::node(&ctx).await.unwrap()
}

/// Git does not keep file times, so the field made of them is left out on both sides.
fn without_times(mut vm: VmObject) -> VmObject {
    assert!(vm.shift_remove("last_modified").is_some());
    vm
}

#[tokio::test]
async fn the_kept_node_gives_the_objects_the_deployed_daemon_shows() {
    let expected = std::fs::read(kept().join("expected/vms.json")).unwrap();
    let Value::Array(expected) = crate::json::parse(&expected).unwrap() else { panic!() };
    let node = node().await;
    assert!(node.broken.is_empty(), "{:?}", node.broken);
    assert_eq!(node.vms.len(), expected.len());
    for want in expected {
        let vm = node.vms.iter().find(|vm| vm["uuid"] == want["uuid"]).unwrap().clone();
        let (got, want) = (without_times(vm), without_times(want.as_object().unwrap().clone()));
        assert_eq!(crate::json::to_ascii(&got), crate::json::to_ascii(&want), "key order counts");
    }
}

#[tokio::test]
async fn the_same_parts_make_the_same_bytes() {
    let node = node().await;
    for vm in &node.vms {
        let parts = &node.parts[vm["zonename"].as_str().unwrap()];
        let again = compose(&parts.clone(), &node.datasets.clone(), &node.sysinfo).unwrap();
        assert_eq!(crate::json::to_ascii(&again), crate::json::to_ascii(vm));
    }
}

pub(super) fn parts(xml: &str, zone_state: &str, brand: &str) -> Parts {
    let uuid = "f8428503-41e2-426e-b0f9-a5d849b545f6";
    let row = ZoneRow {
        zoneid: None,
        zonename: uuid.into(),
        zone_state: word(zone_state),
        zonepath: format!("/zones/{uuid}").into(),
        uuid: uuid.into(),
        brand: word(brand),
        zonedid: Some(5),
    };
    let xml = format!("<zone name='{uuid}' brand='{brand}' autoboot='true'>{xml}</zone>");
    let mut stamps = load::times::Stamps::default();
    stamps.last_modified = Some(1);
    Parts {
        zone: row.into(),
        xml: Arc::new((&load::zone_xml::parse(xml.as_bytes()).unwrap()).into()),
        kstat: None,
        config: ConfigJson::default().into(),
        lastexited: None,
        stamps,
        receiving: None,
    }
}

pub(super) fn made(parts: &Parts) -> VmObject {
    compose(parts, &Datasets::default(), &Sysinfo::default()).unwrap()
}

#[test]
fn a_bare_zone_has_its_defaults() {
    let vm = made(&parts("", "installed", "kvm"));
    assert_eq!(
        (&vm["state"], &vm["zoneid"], &vm["zonedid"]),
        (&json!("stopped"), &Value::Null, &json!(5))
    );
    assert_eq!(
        (&vm["nics"], &vm["disks"], &vm["snapshots"], &vm["resolvers"]),
        (&json!([]), &json!([]), &json!([]), &json!([]))
    );
    assert_eq!((&vm["hvm"], &vm["firewall_enabled"]), (&json!(true), &json!(false)));
    assert_eq!(vm["last_modified"], json!("1970-01-01T00:00:01.000Z"));
    assert!(!vm.contains_key("autoboot"), "kvm's own comes from vm-autoboot");
    assert!(!made(&parts("", "installed", "lx")).contains_key("disks"));
}

#[test]
fn exit_fields_vanish_while_running() {
    let end = load::lastexited::parse(b"1449000000.5 15").unwrap();
    let mut stopped = parts("", "installed", "lx");
    stopped.lastexited = end;
    assert_eq!(made(&stopped)["exit_status"], json!(-15));
    assert_eq!(made(&stopped)["exit_timestamp"], json!("2015-12-01T20:00:00.500Z"));
    stopped.zone = Arc::new(ZoneRow { zone_state: "running".into(), ..(*stopped.zone).clone() });
    assert!(!made(&stopped).contains_key("exit_status"));
}

#[test]
fn receiving_lists_what_is_missing() {
    let xml = "<attr name='transition' value='receiving:stopped:5'/><dataset name='zones/x/data'/>\
               <filesystem special='/s' directory='/t'/><device match='/dev/zvol/rdsk/zones/d'/>";
    let mut parts = parts(xml, "configured", "bhyve");
    assert!(parts.is_receiving());
    parts.receiving = Some(Receiving { zfs_filesystem: Some(Box::new(json!("tank/root"))) });
    let vm = made(&parts);
    assert_eq!(
        vm["missing"],
        json!({"datasets": ["tank/root", "zones/x/data"], "disks": ["/dev/zvol/rdsk/zones/d"], "filesystems": ["/s"]})
    );
    assert_eq!(vm["device"], Value::Null);
    parts.receiving = None;
    assert_eq!(
        made(&parts)["missing"]["datasets"][0],
        json!("zones/f8428503-41e2-426e-b0f9-a5d849b545f6")
    );
}

#[test]
fn what_cannot_be_composed_blames_its_source_and_line() {
    let bad = parts("\n<attr name='alias'/>", "installed", "lx");
    let error = compose(&bad, &Datasets::default(), &Sysinfo::default()).unwrap_err();
    assert_eq!((error.origin, error.line), (Origin::ZoneXml, Some(2)));
    let mut bad = parts("", "running", "lx");
    bad.kstat = Some(ZoneKstat { boot_time: None, init_restarts: None, init_pid: None });
    let error = compose(&bad, &Datasets::default(), &Sysinfo::default()).unwrap_err();
    assert!(error.to_string().starts_with("kstat: expected boot_time"));
}

#[test]
fn lists_are_sorted_by_their_number_and_otherwise_keep_file_order() {
    let xml = "<network physical='net10'/><network physical='net2'/><network physical='eth9'/><network physical='eth1'/>\
               <device match='/a/disk1'/><device match='/b/disk0'/><filesystem directory='/z'/><filesystem directory='/a'/>";
    let vm = made(&parts(xml, "installed", "lx"));
    let list = |key: &str, member: &str| -> Vec<String> {
        vm[key].as_array().unwrap().iter().map(|e| e[member].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("nics", "interface"), ["eth9", "eth1", "net2", "net10"]);
    assert_eq!(list("disks", "path"), ["/b/disk0", "/a/disk1"]);
    assert_eq!(list("filesystems", "target"), ["/z", "/a"]);
}
