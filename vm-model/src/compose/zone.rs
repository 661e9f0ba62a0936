// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The steps of a composition, in the order of the fields.

use std::sync::Arc;

use serde_json::Value;

use super::rules::{set, set_absent, text};
use super::{disks, fields};
use crate::js::{iso, number};
use crate::object::VmObject;
use crate::origin::{Origin, ParseError};
use crate::outline::Outline;
use crate::parse::kstat::ZoneKstat;
use crate::parse::sysinfo::Sysinfo;
use crate::parse::zoneadm::ZoneRow;
use crate::parts::{Parts, shown_state};

/// Composes the object of a VM.
pub fn compose(parts: &Parts) -> Result<VmObject, ParseError> {
    outline(parts).map(Outline::whole)
}

/// Composes the object of a VM with the text of its configuration files.
pub fn outline(parts: &Parts) -> Result<Outline, ParseError> {
    let mut vm = fields::from_xml(&parts.xml)?;
    zone(&mut vm, &parts.zone);
    files(&mut vm, parts)?;
    set_absent(&mut vm, "resolvers", Value::Array(Vec::new()));
    set_absent(&mut vm, "firewall_enabled", false);
    node(&mut vm, &parts.sysinfo);
    let is_provisioning = vm.get("provisioning") == Some(&Value::Bool(true));
    let (transition, failed) = (text(&vm, "state"), text(&vm, "failed"));
    let state = shown_state(transition, is_provisioning, failed, &parts.zone.zone_state).to_owned();
    let is_receiving = state == "receiving";
    set(&mut vm, "state", state);
    if let Some(kstat) = &parts.kstat {
        running(&mut vm, kstat)?;
    }
    for (key, _) in parts.config.texts() {
        set(&mut vm, key, Value::Null);
    }
    if is_receiving
        && let Some(filesystem) =
            parts.receiving.as_ref().and_then(|it| it.zfs_filesystem.as_deref())
    {
        set_absent(&mut vm, "zfs_filesystem", filesystem.clone());
    }
    disks::datasets(&mut vm, &parts.zone, &parts.datasets)?;
    if is_receiving {
        disks::missing(&mut vm, &parts.zone, &parts.datasets);
    }
    Ok(Outline { fields: vm, config: Arc::clone(&parts.config) })
}

fn zone(vm: &mut VmObject, row: &ZoneRow) {
    set(vm, "brand", &*row.brand);
    set(vm, "uuid", &*row.uuid);
    set(vm, "zone_state", &*row.zone_state);
    set(vm, "zonename", &*row.zonename);
    set(vm, "zonepath", &*row.zonepath);
    set(vm, "hvm", matches!(&*row.brand, "kvm" | "bhyve"));
    set(vm, "zoneid", row.zoneid.map(|n| number(n as f64)));
    set(vm, "zonedid", row.zonedid.map(|n| number(n as f64)));
}

fn files(vm: &mut VmObject, parts: &Parts) -> Result<(), ParseError> {
    if let Some(seconds) = parts.stamps.last_modified {
        let time = iso(seconds as f64 * 1000.0).ok_or_else(|| {
            let what =
                format!("expected a time that a date can hold, found {seconds} s since 1970");
            ParseError::content(Origin::Times, what)
        })?;
        set(vm, "last_modified", time);
    }
    if let Some(end) = parts.lastexited.as_ref().filter(|_| &*parts.zone.zone_state != "running") {
        set(vm, "exit_status", end.status);
        set(vm, "exit_timestamp", end.timestamp());
    }
    Ok(())
}

fn node(vm: &mut VmObject, sysinfo: &Sysinfo) {
    for (key, member) in [
        ("server_uuid", "UUID"),
        ("datacenter_name", "Datacenter Name"),
        ("platform_buildstamp", "Live Image"),
        ("headnode_id", "Headnode ID"),
    ] {
        if let Some(value) = sysinfo.get(member) {
            set(vm, key, value.clone());
        }
    }
}

fn running(vm: &mut VmObject, kstat: &ZoneKstat) -> Result<(), ParseError> {
    let boot = kstat.boot_time.and_then(|seconds| iso(seconds * 1000.0)).ok_or_else(|| {
        let found = kstat.boot_time.map_or("none".to_owned(), |seconds| seconds.to_string());
        let what = format!("expected boot_time in seconds since 1970, found {found}");
        ParseError::content(Origin::Kstat, what)
    })?;
    set(vm, "boot_timestamp", boot);
    set(vm, "init_restarts", kstat.init_restarts.clone());
    set(vm, "pid", kstat.init_pid.clone());
    Ok(())
}
