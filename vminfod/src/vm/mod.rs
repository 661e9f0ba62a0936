// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Parts → VM object: a pure function, no I/O, no clock, the same bytes for the same parts.
//!
//! The order of the steps is the order of the keys; what a later step sets replaces what an earlier
//! one did, in its place.

pub mod convert;
mod disks;
pub mod draft;
mod fields;
mod nics;
pub mod origin;
mod rules;
mod state;

use std::sync::Arc;

use sdc_clients::vminfod::VmObject;
use serde_json::Value;

use self::draft::{Draft, Field};
use crate::json::{iso, number};
use crate::load::times::Stamps;
use crate::load::{
    ConfigJson, ConfigValues, Datasets, LastExited, Origin, PackedXml, Receiving, Sysinfo,
    ZoneKstat, ZoneRow, ZoneXml,
};

pub use state::state_of;

/// What one VM's object is made of, besides the node's datasets and sysinfo.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// zoneadm's row.
    pub zone: Arc<ZoneRow>,
    /// The configuration.
    pub xml: Arc<PackedXml>,
    /// The kstat, if the zone has one.
    pub kstat: Option<ZoneKstat>,
    /// Metadata, tags, routes.
    pub config: Arc<ConfigJson>,
    /// How init last ended.
    pub lastexited: Option<LastExited>,
    /// Which versions of its files this was made of.
    pub stamps: Stamps,
    /// The create payload; only read in state receiving.
    pub receiving: Option<Receiving>,
}

impl Parts {
    /// The newest modification time of its files, in seconds since 1970.
    pub fn last_modified(&self) -> Option<i64> {
        self.stamps.last_modified
    }

    /// What is put away packed, as it was read.
    pub fn unpack(&self) -> Unpacked {
        Unpacked { xml: self.xml.unpack(), config: self.config.values() }
    }

    /// Whether the VM is being received, so that the receiving file matters.
    pub fn is_receiving(&self) -> bool {
        state_of(&self.zone, &self.xml) == "receiving"
    }
}

/// What of the parts is put away packed, as it was read.
#[derive(Debug, Clone)]
pub struct Unpacked {
    /// The configuration.
    pub xml: ZoneXml,
    /// Metadata, tags, routes.
    pub config: ConfigValues,
}

/// Why the parts make no object: the source to blame and what was expected of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", origin.name())]
pub struct ComposeError {
    /// The source.
    pub origin: Origin,
    /// The line in its file, if that is known.
    pub line: Option<u32>,
    /// What was found and what was expected.
    pub what: String,
}

impl ComposeError {
    fn new(origin: Origin, what: impl Into<String>) -> Self {
        ComposeError { origin, line: None, what: what.into() }
    }

    fn xml(line: u32, what: impl Into<String>) -> Self {
        ComposeError { origin: Origin::ZoneXml, line: Some(line), what: what.into() }
    }
}

/// Composes one object, as a tree of values.
pub fn compose(
    parts: &Parts,
    datasets: &Datasets,
    sysinfo: &Sysinfo,
) -> Result<VmObject, ComposeError> {
    draft(parts, parts.unpack(), datasets, sysinfo).map(VmObject::from)
}

/// The same to be written at once, while what was read is at hand.
pub fn draft(
    parts: &Parts,
    unpacked: Unpacked,
    datasets: &Datasets,
    sysinfo: &Sysinfo,
) -> Result<Draft, ComposeError> {
    let Unpacked { xml, config } = unpacked;
    let mut vm = fields::from_xml(&xml)?;
    zone(&mut vm, &parts.zone);
    files(&mut vm, parts)?;
    absent(&mut vm, "resolvers", Field::List(Vec::new()));
    absent(&mut vm, "firewall_enabled", Field::Plain(false.into()));
    node(&mut vm, sysinfo);
    let state = state::from_object(&vm, &parts.zone.zone_state);
    let receiving = state == "receiving";
    set(&mut vm, "state", state);
    if let Some(kstat) = &parts.kstat {
        running(&mut vm, kstat)?;
    }
    for (key, value) in [
        ("customer_metadata", config.customer_metadata),
        ("internal_metadata", config.internal_metadata),
        ("routes", config.routes),
        ("tags", config.tags),
    ] {
        if let Some(value) = value {
            set(&mut vm, key, value);
        }
    }
    if let Some(filesystem) =
        parts.receiving.as_ref().filter(|_| receiving).and_then(|r| r.zfs_filesystem.as_ref())
    {
        absent(&mut vm, "zfs_filesystem", Field::Plain((**filesystem).clone()));
    }
    disks::datasets(&mut vm, &parts.zone, datasets)?;
    if receiving {
        disks::missing(&mut vm, &parts.zone, datasets);
    }
    Ok(vm)
}

fn set(vm: &mut Draft, name: &'static str, value: impl Into<Value>) {
    vm.put(name, Field::Plain(value.into()));
}

fn absent(vm: &mut Draft, name: &'static str, field: Field) {
    if vm.get(name).is_none() {
        vm.put(name, field);
    }
}

fn zone(vm: &mut Draft, row: &ZoneRow) {
    set(vm, "brand", &*row.brand);
    set(vm, "uuid", &*row.uuid);
    set(vm, "zone_state", &*row.zone_state);
    set(vm, "zonename", &*row.zonename);
    set(vm, "zonepath", &*row.zonepath);
    set(vm, "hvm", matches!(&*row.brand, "kvm" | "bhyve"));
    set(vm, "zoneid", row.zoneid.map(|n| number(n as f64)));
    set(vm, "zonedid", row.zonedid.map(|n| number(n as f64)));
}

fn files(vm: &mut Draft, parts: &Parts) -> Result<(), ComposeError> {
    if let Some(seconds) = parts.last_modified() {
        let time = iso(seconds as f64 * 1000.0).ok_or_else(|| {
            ComposeError::new(Origin::Times, format!("no date: {seconds} s since 1970"))
        })?;
        set(vm, "last_modified", time);
    }
    if let Some(end) = parts.lastexited.as_ref().filter(|_| parts.zone.zone_state != "running") {
        set(vm, "exit_status", end.status);
        set(vm, "exit_timestamp", end.timestamp());
    }
    Ok(())
}

fn node(vm: &mut Draft, sysinfo: &Sysinfo) {
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

fn running(vm: &mut Draft, kstat: &ZoneKstat) -> Result<(), ComposeError> {
    let boot = kstat.boot_time.and_then(|seconds| iso(seconds * 1000.0)).ok_or_else(|| {
        let what = format!("expected boot_time in seconds since 1970, found {:?}", kstat.boot_time);
        ComposeError::new(Origin::Kstat, what)
    })?;
    set(vm, "boot_timestamp", boot);
    set(vm, "init_restarts", kstat.init_restarts.as_ref().map(Value::from));
    set(vm, "pid", kstat.init_pid.as_ref().map(Value::from));
    Ok(())
}

#[cfg(test)]
mod quirks;
#[cfg(test)]
mod tests;
