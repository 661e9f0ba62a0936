// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The platform's commands that only scripts run, and the shipped script of vminfod's `kstat` command on them.

use daemon::command::Program;
use serde_json::{Value, json};
use simnode::in_process::InProcess;
use simnode::node::zone_kstats;

use super::{fails, new_node, ok, run};

/// The kstats that were printed, without the times at which they were read.
pub fn kstats(printed: &str) -> Vec<Value> {
    let mut all: Vec<Value> = serde_json::from_str(printed).unwrap();
    for one in &mut all {
        assert!(one["snaptime"].is_f64() && one["data"]["snaptime"] == one["snaptime"], "{one}");
        (one["snaptime"], one["data"]["snaptime"]) = (Value::Null, Value::Null);
    }
    all
}

#[test]
fn the_shipped_script_prints_one_zone_if_it_is_named() {
    let (_dir, node) = new_node(8);
    let script = |args: &[&str]| kstats(&ok(run(node.tool("kstat"), args)));
    let all = script(&[]);
    assert!(all.len() > 2 && all.iter().all(|one| one["class"] == "zone_misc"), "{all:?}");
    for one in &all {
        assert_eq!(script(&[&one["instance"].to_string()]), std::slice::from_ref(one));
    }
    // A zone that has just gone is an answer.
    assert_eq!(ok(run(node.tool("kstat"), &["99999"])), "[]\n");
    // In process the same is printed.
    let id = all[1]["instance"].to_string();
    for args in [vec![], vec![id], vec!["99999".to_owned()]] {
        let answer = InProcess::new(&node).answer(Program::Kstat, &args);
        let here = String::from_utf8(answer.stdout).unwrap();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_eq!((answer.status, kstats(&here)), (0, script(&args)));
    }
}

#[test]
fn the_shipped_script_fails_where_kstat_fails() {
    let dir = tempfile::tempdir().unwrap();
    let kstat = dir.path().join("kstat");
    let put = |path: &std::path::Path, text: &str| {
        std::fs::write(path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    };
    let script = dir.path().join("zone-kstats");
    put(&script, &zone_kstats(&kstat));
    // Nothing matched on a whole node, wrong usage, no kstats at all.
    for (status, args) in [(1, vec![]), (2, vec![]), (2, vec!["7"]), (3, vec!["7"])] {
        put(&kstat, &format!("#!/bin/sh\necho broken >&2\nexit {status}\n"));
        assert_eq!(fails(run(&script, &args), status).trim_end(), "broken");
    }
    std::fs::remove_file(&kstat).unwrap();
    assert_eq!(run(&script, &["7"]).status.code(), Some(127));
}

#[test]
fn kstat_prints_what_options_name_and_fails_where_nothing_is() {
    let (_dir, node) = new_node(8);
    let kstat = |args: &[&str]| run(node.platform("kstat"), args);
    let zones = kstats(&ok(kstat(&["-j", "-m", "zones"])));
    assert!(zones.iter().all(|one| one["module"] == "zones") && zones.len() > 2);
    let every = kstats(&ok(kstat(&["-j"])));
    assert_eq!(every.len(), 2 * zones.len(), "another module counts them too");
    let global = kstats(&ok(kstat(&["-j", "-c", "zone_misc", "-n", "global", "-i", "0"])));
    assert_eq!(global, [zones[0].clone()]);
    let data: Vec<&String> = zones[1]["data"].as_object().unwrap().keys().collect();
    assert!(data.is_sorted() && data.len() == 16, "{data:?}");
    let nothing = kstat(&["-j", "-m", "zones", "-i", "99999"]);
    assert_eq!((nothing.status.code(), &*nothing.stdout), (Some(1), &b"[]\n"[..]));
    for wrong in [&["-x"][..], &[], &["-j", "-i", "*"], &["-j", "5"]] {
        assert_eq!(kstat(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn svcadm_restarts_what_runs_and_enables_only_when_it_is_told_to() {
    let (_dir, node) = new_node(0);
    let fmri = "svc:/smartdc/agent/net-agent:default";
    let state = || ok(run(node.platform("svcs"), &["-H", "-o", "state", fmri]));
    let svcadm = |args: &[&str]| ok(run(node.platform("svcadm"), &[args, &[fmri]].concat()));
    let restarts = || node.instance(fmri).unwrap().unwrap().restarts;
    fails(run(node.platform("svcs"), &["-H", "-o", "state", fmri]), 1);
    fails(run(node.platform("svcadm"), &["restart", fmri]), 1);
    node.set_instance(fmri, "disabled").unwrap();
    svcadm(&["restart"]);
    assert_eq!((state().as_str(), restarts()), ("disabled\n", 0));
    svcadm(&["enable", "-s"]);
    svcadm(&["restart"]);
    assert_eq!((state().as_str(), restarts()), ("online\n", 1));
    svcadm(&["disable", "-t"]);
    assert_eq!(state(), "disabled\n");
    assert_eq!(json!(run(node.platform("svcadm"), &["poke", fmri]).status.code()), 2);
}
