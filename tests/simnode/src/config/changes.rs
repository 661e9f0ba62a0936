// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an update changes in a configuration. As zonecfg does it, what is changed is removed and added again.

use sdc_clients::restify::is_uuid;
use serde_json::Value;

use super::{devices, nics, places};
use crate::error::NodeError;
use crate::payload::{self, Payload};
use crate::vmadm::forms::{self, objects};
use crate::xml::Element;

/// Applies the changes that `vmadm update` made of a payload.
pub fn apply_changes(zone: &mut Element, changes: &Payload) -> Result<(), NodeError> {
    let is_docker = zone.value("attr", "docker").is_some();
    for (key, value) in changes {
        places::apply(zone, key, value)?;
    }
    let texts = |list: &str| -> Vec<String> {
        changes
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(forms::printed)
            .collect()
    };
    for mac in texts("remove_nics") {
        zone.children.retain(|child| !nics::has_mac(child, &mac));
    }
    for change in objects(changes, "update_nics") {
        let mac = payload::text(change, "mac").unwrap_or_default();
        let Some(at) = zone.children.iter().position(|child| nics::has_mac(child, mac)) else {
            continue;
        };
        let old = nics::read(&zone.children.remove(at));
        zone.children.push(nics::network(&nics::changed(&old, change)));
    }
    for (list, key, tag) in [
        ("remove_disks", "match", "device"),
        ("remove_pci_devices", "match", "device"),
        ("remove_filesystems", "directory", "filesystem"),
    ] {
        let removed = texts(list);
        let is_it = |child: &Element| {
            child.get(key).is_some_and(|path| removed.iter().any(|it| it == path))
        };
        zone.children.retain(|child| child.name != tag || !is_it(child));
    }
    for change in objects(changes, "update_disks") {
        let path = payload::text(change, "path");
        let is_it = |child: &Element| child.name == "device" && child.get("match") == path;
        let Some(at) = zone.children.iter().position(is_it) else { continue };
        let Some(old) = devices::read(&zone.children.remove(at)) else { continue };
        zone.children.push(devices::disk(&devices::changed(&old, change)));
    }
    for change in objects(changes, "update_filesystems") {
        let target = payload::text(change, "target");
        let is_it =
            |child: &Element| child.name == "filesystem" && child.get("directory") == target;
        let Some(at) = zone.children.iter().position(is_it) else {
            return Err(NodeError::refused("there is no file system of this target"));
        };
        let mut fs = devices::read_filesystem(&zone.children.remove(at));
        fs.extend(change.clone());
        zone.children.push(devices::filesystem(&fs));
    }
    for change in objects(changes, "update_pci_devices") {
        let path = payload::text(change, "path");
        zone.children.retain(|child| child.name != "device" || child.get("match") != path);
        zone.children.push(devices::pci_device(change));
    }
    apply_lists(zone, changes)?;
    if is_docker {
        log(zone);
    } else {
        docker_log(zone, changes);
    }
    one_primary(zone, changes);
    Ok(())
}

/// Applies the lists of new devices and NICs.
pub(super) fn apply_lists(zone: &mut Element, vm: &Payload) -> Result<(), NodeError> {
    for fs in objects(vm, "filesystems") {
        // One that is a volume is added when that is there.
        if !payload::text(fs, "source").is_some_and(is_uuid) {
            zone.children.push(devices::filesystem(fs));
        }
    }
    zone.children.extend(objects(vm, "disks").into_iter().map(devices::disk));
    zone.children.extend(objects(vm, "pci_devices").into_iter().map(devices::pci_device));
    for nic in objects(vm, "nics") {
        if payload::text(nic, "mac").and_then(crate::vmadm::nics::mac).is_none() {
            return Err(NodeError::invalid(
                "mac",
                format!("a NIC has none: {}", Value::Object(nic.clone())),
            ));
        }
        zone.children.push(nics::network(nic));
    }
    Ok(())
}

/// What a docker VM writes is logged by the zone.
pub(super) fn docker_log(zone: &mut Element, vm: &Payload) {
    if vm.get("docker").is_some_and(forms::is_true) {
        log(zone);
    }
}

fn log(zone: &mut Element) {
    zone.set_value("attr", "zlog-mode", Some("g--"));
    zone.set_value("attr", "app-svc-dependent", None);
}

/// The NIC that a payload makes primary takes that from the others.
fn one_primary(zone: &mut Element, changes: &Payload) {
    let given = objects(changes, "nics").into_iter().chain(objects(changes, "update_nics"));
    let first = given.into_iter().find(|nic| nic.get("primary").is_some_and(forms::is_true));
    let Some(mac) = first.and_then(|nic| payload::text(nic, "mac")) else { return };
    for child in zone
        .children
        .iter_mut()
        .filter(|child| child.name == "network" && !nics::has_mac(child, mac))
    {
        child.set_value("net-attr", "primary", None);
    }
}

/// Returns true if the property is one of those that a configuration stores by itself.
pub fn is_stored(key: &str) -> bool {
    places::is_stored(key)
}
