// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What vmadm asks of the node while it checks a payload.

use std::collections::BTreeMap;

use crate::payload::Payload;

/// An image of the pool, as its manifest has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// `zone-dataset`, `lx-dataset`, `docker`, `zvol`; empty where there is no manifest and the dataset is a
    /// file system.
    pub kind: String,
    /// The size of a disk of it, in MiB.
    pub size: Option<u64>,
    /// The boot ROM that it wants.
    pub bootrom: Option<String>,
    /// Where its cloud-init looks for metadata.
    pub cloudinit: Option<String>,
}

/// A NIC tag of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The largest packets, where the tag is of a physical NIC.
    pub mtu: Option<u64>,
}

/// The node around a VM.
pub struct Surroundings {
    pub pools: Vec<String>,
    /// Its images by UUID.
    pub images: BTreeMap<String, Image>,
    /// Its NIC tags. That of an overlay is here by its rule, without the number.
    pub tags: BTreeMap<String, Tag>,
    /// Its VMs: their NICs and `vnc_port`, the VM in question among them.
    pub vms: Vec<Payload>,
    /// The space that zfs reserves for a volume of so many bytes.
    pub reserves: fn(u64) -> u64,
    /// Makes new UUIDs.
    pub new_uuid: Box<dyn FnMut() -> String + Send>,
}

impl Surroundings {
    /// A new UUID.
    pub(crate) fn uuid(&mut self) -> String {
        (self.new_uuid)()
    }

    /// The tag of a NIC, `admin` or `sdc_overlay/1234`.
    pub(crate) fn tag(&self, name: &str) -> Option<&Tag> {
        let rule = name.split_once('/').map_or(name, |(rule, _)| rule);
        self.tags.get(rule)
    }
}
