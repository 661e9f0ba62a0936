// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configurations of new zones.

use sdc_clients::restify::is_uuid;
use serde_json::json;

use super::{changes, devices, places};
use crate::error::NodeError;
use crate::payload::{self, Payload};
use crate::vmadm::forms;
use crate::xml::Element;

/// The whole configuration of a new VM. `zonepath` and `zonedid` are its place.
pub fn zone_xml(vm: &Payload, zonepath: &str, zonedid: i64) -> Result<Element, NodeError> {
    let need =
        |key: &str| payload::text(vm, key).ok_or_else(|| NodeError::invalid(key, "is required"));
    let id = zonedid.to_string();
    let attrs = [
        ("name", need("uuid")?),
        ("zonepath", zonepath),
        ("autoboot", "false"),
        ("brand", need("brand")?),
        ("ip-type", "exclusive"),
        ("limitpriv", "default"),
        ("debugid", id.as_str()),
    ];
    let mut zone = Element::new("zone", &attrs);
    for key in places::stored() {
        if let Some(value) = vm.get(key) {
            places::apply(&mut zone, key, value)?;
        }
    }
    changes::apply_lists(&mut zone, vm)?;
    changes::docker_log(&mut zone, vm);
    Ok(zone)
}

/// Returns true if the configuration of a new VM is changed once its datasets are there.
pub fn is_installed_later(vm: &Payload) -> bool {
    let is_volume = |fs: &&Payload| payload::text(fs, "source").is_some_and(is_uuid);
    vm.get("delegate_dataset").is_some_and(forms::is_true)
        || forms::objects(vm, "filesystems").iter().any(is_volume)
}

/// The delegated dataset of a VM, and its file systems that are volumes: once their datasets are there.
pub fn installed(zone: &mut Element, vm: &Payload) {
    let zonepath = zone.get("zonepath").unwrap_or_default().to_string();
    if vm.get("delegate_dataset").is_some_and(forms::is_true) {
        let name = format!("{}/data", zonepath.trim_start_matches('/'));
        zone.children.push(Element::new("dataset", &[("name", &name)]));
    }
    for fs in forms::objects(vm, "filesystems") {
        let source = payload::text(fs, "source").unwrap_or_default();
        if is_uuid(source) {
            let mut fs = fs.clone();
            fs.insert("source".to_string(), json!(format!("{zonepath}/volumes/{source}")));
            zone.children.push(devices::filesystem(&fs));
        }
    }
}
