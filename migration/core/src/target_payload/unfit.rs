// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why no node would create a VM.

use sdc_clients::quoted;

/// Why no node would create such a VM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// What every payload of the brand needs.
    #[error("The instance has no {0}")]
    Lacks(&'static str),
    /// vmadm does not create it.
    #[error("vmadm creates no instance of the brand {}", quoted(.0))]
    Brand(String),
    /// A value of a kind that vmadm refuses.
    #[error("vmadm rejects the instance's {0}")]
    Value(&'static str),
    #[error("The disk {disk} {why}")]
    Disk {
        /// Its path, or its place in the list.
        disk: String,
        /// What is wrong with it.
        why: DiskFault,
    },
    #[error("The NIC {nic} {why}")]
    Nic {
        nic: String,
        /// What is wrong with it.
        why: NicFault,
    },
}

/// What vmadm refuses in a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskFault {
    /// Neither an image nor a size gives its size.
    #[error("has neither an image nor a size")]
    NoSize,
    /// Neither the disk nor the VM's disk_driver names it.
    #[error("has no model")]
    NoModel,
    /// The brand does not have it.
    #[error("has a model that the brand does not have")]
    Model,
    /// What is no disk of the VM's pool is known by its path.
    #[error("has no path")]
    NoPath,
    /// vmadm makes disks, and takes the path of a CD-ROM.
    #[error("has a path, and is neither a disk nor a CD-ROM")]
    Path,
    /// At most one may be.
    #[error("is not the only boot disk")]
    Boot,
    /// Those without a slot get one of a device of their kind, which has eight.
    #[error("has no pci_slot left on a device of its kind")]
    Slots,
    /// Two disks have it, it is none, or the brand keeps it for itself.
    #[error("has a pci_slot that is taken")]
    Slot,
    /// A value of a kind that vmadm refuses.
    #[error("has a {0} that vmadm rejects")]
    Value(&'static str),
}

/// What vmadm refuses in a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicFault {
    /// Needed.
    #[error("has no nic_tag")]
    NoTag,
    /// Needed by a guest with its own kernel, where the VM has no nic_driver.
    #[error("has no model")]
    NoModel,
    /// An address has the length of its prefix.
    #[error("has an address without netmask")]
    NoNetmask,
    /// Two NICs have the MAC.
    #[error("has the MAC of another one")]
    Mac,
    /// Two NICs are.
    #[error("is not the only primary one")]
    Primary,
    /// A virtual address needs the MAC of its number, and the address of another NIC.
    #[error("is of VRRP, and lacks its MAC or the address of another NIC")]
    Vrrp,
    /// A value of a kind that vmadm refuses.
    #[error("has a {0} that vmadm rejects")]
    Value(&'static str),
}
