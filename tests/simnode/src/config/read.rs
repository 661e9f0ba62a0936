// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A configuration as the VM that vmadm would change.

use super::places::RCTLS;
use super::{devices, nics};
use crate::payload::{self, Payload};
use crate::vmadm::memory::Limits;
use crate::vmadm::update::Subject;
use crate::xml::Element;

/// A limit of a zone's, such as `max_swap`, in the unit of payloads.
pub fn limit(zone: &Element, key: &str) -> Option<u64> {
    let (_, name, _, unit) = RCTLS.iter().find(|(k, _, _, _)| *k == key)?;
    let rctl = zone.all("rctl").find(|rctl| rctl.get("name") == Some(name))?;
    let value: u64 = rctl.children.first()?.get("limit")?.parse().ok()?;
    Some(value / unit)
}

/// The NICs of a configuration.
pub fn nics(zone: &Element) -> Vec<Payload> {
    zone.all("network").map(nics::read).collect()
}

/// The disks of a configuration.
pub fn disks(zone: &Element) -> Vec<Payload> {
    zone.all("device").filter_map(devices::read).collect()
}

/// The VM of a configuration; its state, routes and metadata are elsewhere.
pub fn subject(zone: &Element) -> Subject {
    let attr = |name: &str| zone.value("attr", name);
    let number = |name: &str| attr(name).and_then(|text| text.parse().ok());
    let zonepath = zone.get("zonepath").unwrap_or_default().trim_start_matches('/');
    let namespaces = attr("internal-metadata-namespaces")
        .map(|text| text.split(',').map(str::to_string).collect());
    let brand = zone.get("brand").unwrap_or_default();
    Subject {
        uuid: zone.get("name").unwrap_or_default().to_string(),
        brand: brand.to_string(),
        pool: zonepath.split('/').next().unwrap_or_default().to_string(),
        limits: Limits {
            ram: number("ram").filter(|_| payload::is_hvm(brand)),
            physical: limit(zone, "max_physical_memory"),
            locked: limit(zone, "max_locked_memory"),
            swap: limit(zone, "max_swap"),
            tmpfs: number("tmpfs"),
        },
        nics: nics(zone),
        disks: disks(zone),
        namespaces: namespaces.unwrap_or_default(),
        has_init: attr("init-name").is_some(),
        has_restart: attr("restart-init").is_some(),
        disk_driver: attr("disk-driver").map(str::to_string),
        nic_driver: attr("nic-driver").map(str::to_string),
        ..Subject::default()
    }
}
