// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! What the deployed loader gets wrong, one test each: cured where no client can be hurt, kept
//! where one could have come to depend on it.

use std::sync::Arc;

use pretty_assertions::assert_eq;
use serde_json::json;

use super::tests::{made, parts};
use super::*;
use crate::commands::{CommandPaths, RealCommands};
use crate::load::datasets::Row;
use crate::load::kstat::Small;
use crate::load::{self, Ctx};
use crate::root::Root;

const UUID: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

fn ctx() -> (tempfile::TempDir, Ctx) {
    let dir = tempfile::tempdir().unwrap();
    let ctx = Ctx::new(Root::new(dir.path()), Arc::new(RealCommands::new(CommandPaths::default())));
    (dir, ctx)
}

fn listing(names: &[(&str, &str)]) -> Vec<Row> {
    let row = |(kind, name): &(&str, &str)| {
        let line = format!(
            "lz4\t1500000000\t0\t/{name}\t{name}\t1\t2\t3\t4\t5\t{kind}\t-\t7\t8\t9\t10\toff"
        );
        Row::parse(&line).unwrap()
    };
    names.iter().map(row).collect()
}

#[tokio::test]
async fn fixed_config_is_read_where_the_zone_is_whatever_its_pool() {
    let (dir, ctx) = ctx();
    for (pool, text) in [("zones", r#"{"of":"another"}"#), ("tank", r#"{"of":"it"}"#)] {
        let config = dir.path().join(pool).join(UUID).join("config");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("tags.json"), text).unwrap();
    }
    let mut parts = parts("", "installed", "joyent");
    let row = ZoneRow { zonepath: format!("/tank/{UUID}").into(), ..(*parts.zone).clone() };
    parts.config = load::config::load(&ctx, &row).await.unwrap().into();
    assert_eq!(made(&parts)["tags"], json!({"of": "it"}));
}

#[test]
fn fixed_sysinfo_reaches_the_object_with_the_next_composition() {
    let parts = parts("", "installed", "joyent");
    let image = |text: &str| {
        let sysinfo = load::sysinfo::parse(text.as_bytes()).unwrap();
        compose(&parts, &Datasets::default(), &sysinfo).unwrap()["platform_buildstamp"].clone()
    };
    assert_eq!(image(r#"{"Live Image": "old"}"#), json!("old"));
    assert_eq!(image(r#"{"Live Image": "new"}"#), json!("new"));
}

#[test]
fn fixed_delegated_snapshots_count_once_their_rows_are_there() {
    let parts = parts("", "installed", "joyent");
    let (root, data) = (format!("zones/{UUID}"), format!("zones/{UUID}/data"));
    let shown = |datasets: &Datasets| {
        let vm = compose(&parts, datasets, &Sysinfo::default()).unwrap();
        vm.contains_key("indestructible_delegated")
    };
    // What a refresh lists, and what the engine takes over from its older tables.
    let mut datasets: Datasets =
        listing(&[("filesystem", &root), ("filesystem", &data)]).into_iter().collect();
    assert!(!shown(&datasets));
    datasets.insert(listing(&[("snapshot", &format!("{data}@indestructible"))]));
    assert!(shown(&datasets));
}

#[test]
fn fixed_a_name_that_is_not_the_uuid_still_finds_its_files() {
    let line = format!("-:web:installed:/zones/web:{UUID}:joyent:excl:7\n");
    let rows = load::zoneadm::parse(line.as_bytes());
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&*row.zonename, &*row.uuid), ("web", UUID));
    let (dir, ctx) = ctx();
    assert_eq!(ctx.root.zone_xml(&row.zonename), dir.path().join("etc/zones/web.xml"));
    let mut parts = parts("", "installed", "joyent");
    parts.zone = Arc::new(row.clone());
    let vm = made(&parts);
    assert_eq!((&vm["zonename"], &vm["uuid"]), (&json!("web"), &json!(UUID)));
}

#[test]
fn kept_device_leaks_as_null() {
    let vm = made(&parts("<device match='/a'/>", "installed", "kvm"));
    assert_eq!(vm["device"], Value::Null);
}

#[test]
fn kept_any_text_in_failed_is_a_failure() {
    for text in ["false", "0", "provisioning"] {
        let vm = made(&parts(&format!("<attr name='failed' value='{text}'/>"), "running", "lx"));
        assert_eq!((&vm["failed"], &vm["state"]), (&json!(text), &json!("failed")));
    }
}

#[test]
fn kept_every_file_system_of_a_vm_being_received_is_missing() {
    let xml = "<attr name='transition' value='receiving:stopped:5'/><filesystem special='/' directory='/t'/>";
    assert_eq!(made(&parts(xml, "installed", "lx"))["missing"]["filesystems"], json!(["/"]));
}

#[test]
fn kept_a_config_file_that_is_no_json_is_an_empty_object() {
    assert_eq!(load::config::value(Some(b"{\"a\":")).unwrap(), json!({}));
}

#[test]
fn kept_last_modified_has_whole_seconds_and_a_time_of_zero_is_none() {
    assert_eq!(
        made(&parts("", "installed", "lx"))["last_modified"],
        json!("1970-01-01T00:00:01.000Z")
    );
    assert_eq!(load::times::newest([Some(0)]), None);
}

#[test]
fn kept_an_exit_status_that_is_no_number_is_success_and_a_core_flag_stays() {
    let status = |text: &[u8]| load::lastexited::parse(text).unwrap().unwrap().status;
    assert_eq!(status(b"1449000000 abc"), 0);
    assert_eq!(status(b"1449000000 139"), -139);
}

#[test]
fn kept_a_ready_zone_booted_in_1970_with_pid_zero() {
    let mut ready = parts("", "ready", "lx");
    ready.kstat = Some(ZoneKstat {
        boot_time: Some(0.0),
        init_restarts: Some(Small::Whole(0)),
        init_pid: Some(Small::Whole(0)),
    });
    let vm = made(&ready);
    assert_eq!(
        (&vm["pid"], &vm["boot_timestamp"]),
        (&json!(0), &json!("1970-01-01T00:00:00.000Z"))
    );
}

#[test]
fn kept_a_transition_never_expires() {
    let vm = made(&parts("<attr name='transition' value='stopping:stopped:5'/>", "running", "kvm"));
    assert_eq!((&vm["state"], &vm["transition_expire"]), (&json!("stopping"), &json!(5)));
}

#[test]
fn kept_odd_values_stay_odd() {
    let xml = "<attr name='resolvers' value=''/><attr name='docker' value='TRUE'/><attr name='ram' value='much'/>\
               <filesystem special='/s' directory='/t'><fsoption/></filesystem>";
    let vm = made(&parts(xml, "installed", "lx"));
    assert_eq!((&vm["resolvers"], &vm["docker"]), (&json!([""]), &json!("TRUE")));
    assert_eq!((&vm["ram"], &vm["filesystems"][0]["options"]), (&Value::Null, &json!([null])));
}
