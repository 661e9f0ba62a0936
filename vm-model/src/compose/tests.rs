// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Objects composed of parts by hand. The quirks of the deployed loader (docs/contract/vm-object.md,
//! section 12) have a test each: `fixed_` if no client can notice, `kept_` if one may rely on it. The
//! number beside the test is that of section 12.

use std::collections::BTreeSet;
use std::sync::Arc;

use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::compose;
use crate::datasets::{Datasets, VmDatasets};
use crate::object::VmObject;
use crate::origin::{Fault, Origin};
use crate::parse::config_json::{self, ConfigJson};
use crate::parse::kstat::ZoneKstat;
use crate::parse::receiving::Receiving;
use crate::parse::zfs_list::Row;
use crate::parse::zfs_list::tests::row as listed;
use crate::parse::zoneadm::ZoneRow;
use crate::parse::{lastexited, sysinfo, zone_xml, zoneadm};
use crate::parts::{Parts, Stamps};

const UUID: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

fn parts(xml: &str, zone_state: &str, brand: &str) -> Parts {
    let row = format!("-:{UUID}:{zone_state}:/zones/{UUID}:{UUID}:{brand}:excl:5");
    let xml = format!("<zone name='{UUID}' brand='{brand}' autoboot='true'>{xml}</zone>");
    let stamps = Stamps { last_modified: Some(1), ..Stamps::default() };
    Parts {
        zone: Arc::new(zoneadm::parse(row.as_bytes()).remove(0)),
        xml: Arc::new(zone_xml::parse(xml.as_bytes()).unwrap()),
        kstat: None,
        config: ConfigJson::default().into(),
        lastexited: None,
        stamps,
        receiving: None,
        datasets: VmDatasets::default(),
        sysinfo: Arc::default(),
    }
}

/// The kstat of a zone that booted then.
fn booted(seconds: f64) -> ZoneKstat {
    ZoneKstat { boot_time: Some(seconds), init_restarts: None, init_pid: None }
}

fn made(parts: &Parts) -> VmObject {
    compose(parts).unwrap()
}

#[test]
fn a_bare_zone_has_its_defaults() {
    let vm = made(&parts("", "installed", "kvm"));
    let defaults = json!({
        "state": "stopped", "zoneid": null, "zonedid": 5, "hvm": true, "firewall_enabled": false,
        "nics": [], "disks": [], "snapshots": [], "resolvers": [],
        "last_modified": "1970-01-01T00:00:01.000Z",
    });
    for (field, value) in defaults.as_object().unwrap() {
        assert_eq!(&vm[field], value, "{field}");
    }
    assert!(!vm.contains_key("autoboot"), "kvm's own comes from vm-autoboot");
    assert!(!made(&parts("", "installed", "lx")).contains_key("disks"));
}

#[test]
fn exit_fields_vanish_while_running() {
    let end = lastexited::parse(b"1449000000.5 15").unwrap();
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
    let (datasets, disks) = (["tank/root", "zones/x/data"], ["/dev/zvol/rdsk/zones/d"]);
    let missing = json!({"datasets": datasets, "disks": disks, "filesystems": ["/s"]});
    assert_eq!(vm["missing"], missing);
    assert_eq!(vm["device"], Value::Null);
    parts.receiving = None;
    assert_eq!(made(&parts)["missing"]["datasets"][0], json!(format!("zones/{UUID}")));
}

#[test]
fn an_error_names_its_source_and_line() {
    let bad = parts("\n<attr name='alias'/>", "installed", "lx");
    let error = compose(&bad).unwrap_err();
    let fault = Fault::Line { line: 2, what: "expected a value for \"alias\"".into() };
    assert_eq!((error.origin, error.fault), (Origin::ZoneXml, fault));
    let mut bad = parts("", "running", "lx");
    bad.kstat = Some(ZoneKstat { boot_time: None, init_restarts: None, init_pid: None });
    let error = compose(&bad).unwrap_err();
    assert!(error.to_string().starts_with("kstat: expected boot_time"));
}

#[test]
fn lists_are_sorted_by_number_and_else_keep_the_order_of_the_file() {
    let xml = "<network physical='net10'/><network physical='net2'/><network physical='eth9'/>\
               <network physical='eth1'/>\
               <device match='/a/disk1'/><device match='/b/disk0'/>\
               <filesystem directory='/z'/><filesystem directory='/a'/>";
    let vm = made(&parts(xml, "installed", "lx"));
    let list = |key: &str, member: &str| -> Vec<String> {
        vm[key].as_array().unwrap().iter().map(|e| e[member].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("nics", "interface"), ["eth9", "eth1", "net2", "net10"]);
    assert_eq!(list("disks", "path"), ["/b/disk0", "/a/disk1"]);
    assert_eq!(list("filesystems", "target"), ["/z", "/a"]);
}

fn listing(names: &[(&str, &str)]) -> Vec<Row> {
    let row = |(kind, name): &(&str, &str)| listed(kind, name, &format!("/{name}"), "off");
    names.iter().map(row).collect()
}

#[test]
// no. 13
fn fixed_a_change_of_sysinfo_shows() {
    let image = |text: &str| {
        let mut parts = parts("", "installed", "joyent");
        parts.sysinfo = Arc::new(sysinfo::parse(text.as_bytes()).unwrap());
        made(&parts)["platform_buildstamp"].clone()
    };
    assert_eq!(image(r#"{"Live Image": "old"}"#), json!("old"));
    assert_eq!(image(r#"{"Live Image": "new"}"#), json!("new"));
}

#[test]
// no. 1
fn fixed_delegated_snapshots_count() {
    let (root, data) = (format!("zones/{UUID}"), format!("zones/{UUID}/data"));
    let shown = |datasets: &Datasets| {
        let mut parts = parts("", "installed", "joyent");
        parts.datasets = datasets.only(parts.dataset_names(datasets).iter().map(String::as_str));
        made(&parts).contains_key("indestructible_delegated")
    };
    // The snapshots come later than the listing of the datasets.
    let mut datasets: Datasets =
        listing(&[("filesystem", &root), ("filesystem", &data)]).into_iter().collect();
    assert!(!shown(&datasets));
    datasets.insert(listing(&[("snapshot", &format!("{data}@indestructible"))]));
    assert!(shown(&datasets));
}

#[test]
fn snapshots_of_one_second_keep_the_order_of_the_listing() {
    let root = format!("zones/{UUID}");
    let of = ["b", "a", "c"].map(|name| format!("{root}@vmsnap-{name}"));
    let mut datasets: Datasets = listing(&[("filesystem", &root)]).into_iter().collect();
    datasets.insert(listing(&of.each_ref().map(|name| ("snapshot", name.as_str()))));
    // An event has one of them listed again.
    datasets.replace(&of[0], listing(&[("snapshot", &of[0])]));
    let mut parts = parts("", "installed", "joyent");
    parts.datasets = datasets.only([root.as_str()]);
    let vm = made(&parts);
    let names = vm["snapshots"].as_array().unwrap().iter().map(|one| one["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["b", "a", "c"]);
}

#[test]
// no. 11
fn fixed_a_name_that_is_not_the_uuid_is_shown() {
    let line = format!("-:web:installed:/zones/web:{UUID}:joyent:excl:7\n");
    let rows = zoneadm::parse(line.as_bytes());
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&*row.zonename, &*row.uuid), ("web", UUID));
    let mut parts = parts("", "installed", "joyent");
    parts.zone = Arc::new(row.clone());
    let vm = made(&parts);
    assert_eq!((&vm["zonename"], &vm["uuid"]), (&json!("web"), &json!(UUID)));
}

#[test]
// no. 2
fn kept_device_leaks_as_null() {
    let vm = made(&parts("<device match='/a'/>", "installed", "kvm"));
    assert_eq!(vm["device"], Value::Null);
}

#[test]
// no. 3
fn kept_any_text_in_failed_is_a_failure() {
    for text in ["false", "0", "provisioning"] {
        let vm = made(&parts(&format!("<attr name='failed' value='{text}'/>"), "running", "lx"));
        assert_eq!((&vm["failed"], &vm["state"]), (&json!(text), &json!("failed")));
    }
}

#[test]
// no. 4
fn kept_every_file_system_of_a_vm_being_received_is_missing() {
    let xml = "<attr name='transition' value='receiving:stopped:5'/><filesystem special='/' directory='/t'/>";
    assert_eq!(made(&parts(xml, "installed", "lx"))["missing"]["filesystems"], json!(["/"]));
}

#[test]
// no. 8
fn kept_a_config_file_that_is_not_json_is_an_empty_object() {
    assert_eq!(config_json::text(Some(b"{\"a\":")).unwrap().0, "{}");
}

#[test]
// no. 14
fn kept_last_modified_has_whole_seconds() {
    let vm = made(&parts("", "installed", "lx"));
    assert_eq!(vm["last_modified"], "1970-01-01T00:00:01.000Z");
}

#[test]
// no. 15
fn kept_an_exit_status_that_is_no_number_is_success_and_a_core_flag_stays() {
    let status = |text: &[u8]| lastexited::parse(text).unwrap().unwrap().status;
    assert_eq!(status(b"1449000000 abc"), 0);
    assert_eq!(status(b"1449000000 139"), -139);
}

#[test]
// no. 16
fn kept_a_ready_zone_booted_in_1970_with_pid_zero() {
    let mut ready = parts("", "ready", "lx");
    ready.kstat = Some(ZoneKstat { init_pid: Some(json!(0)), ..booted(0.0) });
    let vm = made(&ready);
    assert_eq!(vm["pid"], 0);
    assert_eq!(vm["boot_timestamp"], "1970-01-01T00:00:00.000Z");
}

#[test]
// no. 17
fn kept_a_transition_never_expires() {
    let vm = made(&parts("<attr name='transition' value='stopping:stopped:5'/>", "running", "kvm"));
    assert_eq!((&vm["state"], &vm["transition_expire"]), (&json!("stopping"), &json!(5)));
}

#[test]
// no. 20
fn kept_odd_values_stay_odd() {
    let xml = "<attr name='resolvers' value=''/><attr name='docker' value='TRUE'/><attr name='ram' value='much'/>\
               <filesystem special='/s' directory='/t'><fsoption/></filesystem>";
    let vm = made(&parts(xml, "installed", "lx"));
    assert_eq!((&vm["resolvers"], &vm["docker"]), (&json!([""]), &json!("TRUE")));
    assert_eq!((&vm["ram"], &vm["filesystems"][0]["options"]), (&Value::Null, &json!([null])));
}

const NAMES: [&str; 7] =
    ["zones/u", "zones/u/data", "zones/v", "zones/v/data", "tank/r", "tank/r/data", "zones"];

/// One of these words.
fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words.split(' ').collect::<Vec<_>>())
}

/// Rows of a small node: few names and mountpoints, so that they often meet.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let name = prop::sample::select(&NAMES[..]);
    let mountpoint = one_of("- legacy none /zones/u /m /tank/r");
    let kind = one_of("filesystem volume @indestructible @vmsnap-a @vmsnap-b");
    let number = one_of("- 0 1 1500000000 1e300 18446744073709551615");
    let numbers = proptest::collection::vec(number, 12);
    let columns = (name, kind, mountpoint, one_of("lz4 off"), one_of("on off"), numbers);
    let row = columns.prop_map(|(name, kind, mountpoint, compression, zoned, n)| {
        let (name, kind) = match kind.strip_prefix('@') {
            Some(_) => (format!("{name}{kind}"), "snapshot"),
            None => (name.to_owned(), kind),
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l] = n[..] else { panic!("{n:?}") };
        let line = format!(
            "{compression}\t{a}\t{b}\t{name}\t{c}\t{d}\t{e}\t{f}\t{g}\t{kind}\t\
             {h}\t{i}\t{j}\t{k}\t{l}\t{zoned}"
        );
        Row::parse(&line).unwrap().mounted_at(mountpoint)
    });
    proptest::collection::vec(row, 0..14)
}

/// A configuration whose names, values and paths are sometimes those that count.
fn xml() -> impl Strategy<Value = String> {
    let path = one_of("/m /zones/u /dev/zvol/rdsk/zones/v /dev/zvol/rdsk/ /x/disk1");
    let name = prop::sample::select(&NAMES[..]);
    let value = "receiving:stopped:5|-?[0-9]{1,3}|true|[a,:=/]{0,4}";
    let key = "ram|alias|resolvers|failed|provisioning|transition|vm-autoboot|flexible-disk-size|x";
    let element = prop_oneof![
        path.prop_map(|path| format!("<device match='{path}'/>")),
        (value, "boot|image-size|model|x").prop_map(|(value, key)| {
            format!("<device><net-attr name='{key}' value='{value}'/></device>")
        }),
        name.prop_map(|name| format!("<dataset name='{name}'/>")),
        (key, value).prop_map(|(key, value)| format!("<attr name='{key}' value='{value}'/>")),
        key.prop_map(|key| format!("<attr name='{key}'/>")),
        Just("<attr name='transition' value='receiving:stopped:5'/>".to_owned()),
        value.prop_map(|value| format!("<filesystem special='{value}' directory='{value}'/>")),
        value.prop_map(|value| {
            format!("<network physical='net{value}'><net-attr name='ips' value='{value}'/></network>")
        }),
        value.prop_map(|value| {
            format!("<rctl name='zone.max-swap'><rctl-value priv='privileged' action='deny' limit='{value}'/></rctl>")
        }),
    ];
    proptest::collection::vec(element, 0..9).prop_map(|elements| elements.concat())
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let zone_state = one_of("installed running configured");
    let brand = one_of("kvm bhyve lx");
    let zonepath = one_of("/zones/u /m /tank/r /");
    let receiving = [json!(null), json!(5), json!(""), json!("tank/r"), json!("zones/u")];
    let receiving = prop::sample::select(receiving.to_vec());
    let kstat = proptest::option::of(any::<f64>());
    let last_modified = proptest::option::of(any::<i64>());
    let lastexited = "[0-9]{1,10} [0-9]{1,3}";
    let all = (zone_state, brand, zonepath, xml(), receiving, kstat, last_modified, lastexited);
    all.prop_map(
        |(zone_state, brand, zonepath, xml, receiving, boot_time, last_modified, lastexited)| {
            let mut parts = parts(&xml, zone_state, brand);
            parts.zone = Arc::new(ZoneRow { zonepath: zonepath.into(), ..(*parts.zone).clone() });
            parts.receiving = Some(Receiving { zfs_filesystem: Some(Box::new(receiving)) });
            parts.kstat = boot_time.map(booted);
            parts.stamps.last_modified = last_modified;
            parts.lastexited = lastexited::parse(lastexited.as_bytes()).unwrap();
            parts
        },
    )
}

proptest! {
    /// Also composes any parts without a panic.
    #[test]
    fn a_vm_needs_only_the_datasets_it_names(rows in rows(), mut parts in any_parts()) {
        let all: Datasets = rows.clone().into_iter().collect();
        let names = rows.iter().filter_map(|row| row.name().split('@').next());
        parts.datasets = all.only(names.collect::<BTreeSet<_>>());
        let with_all = compose(&parts);
        parts.datasets = all.only(parts.dataset_names(&all).iter().map(String::as_str));
        let with_own = compose(&parts);
        let text = |vm: &Result<VmObject, _>| vm.as_ref().ok().map(crate::js::to_ascii);
        prop_assert_eq!(text(&with_own), text(&with_all));
        prop_assert_eq!(with_own, with_all);
    }
}
