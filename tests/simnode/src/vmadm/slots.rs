// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The PCI slots of a bhyve guest, which sees its disks by them.

use std::fmt;

use crate::refusal::Refusal;

/// How many disks one device has room for.
const FUNCTIONS: u8 = 8;
/// The devices of bus 0 that bhyve needs itself.
const RESERVED: [u8; 4] = [0, 6, 30, 31];

/// Bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.bus, self.device, self.function)
    }
}

impl Slot {
    /// Reads `D`, `D:F` or `B:D:F`.
    pub(crate) fn parse(text: &str) -> Option<Slot> {
        let is_number = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
        let parts: Vec<&str> = text.split(':').collect();
        if !parts.iter().all(is_number) {
            return None;
        }
        let numbers: Vec<u8> = parts.iter().map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let (bus, device, function) = match numbers.as_slice() {
            [device] => (0, *device, 0),
            [device, function] => (0, *device, *function),
            [bus, device, function] => (*bus, *device, *function),
            _ => return None,
        };
        (device < 32 && function < FUNCTIONS).then_some(Slot { bus, device, function })
    }

    /// The same, refused in vmadm's words.
    pub(crate) fn checked(text: &str) -> Result<Slot, Refusal> {
        let Some(slot) = Slot::parse(text) else {
            return Refusal::rule(format!("pci_slot \"{text}\" is not valid"));
        };
        if slot.bus == 0 && RESERVED.contains(&slot.device) {
            let what =
                format!("pci_slot \"{text}\" invalid: PCI device {} is reserved", slot.device);
            return Refusal::rule(what);
        }
        Ok(slot)
    }

    /// The first slot that is free: disks and CD-ROMs have a device each.
    pub(crate) fn free(is_cdrom: bool, taken: &[Slot]) -> Result<Slot, Refusal> {
        let device = if is_cdrom { 3 } else { 4 };
        let mut slots = (0..FUNCTIONS).map(|function| Slot { bus: 0, device, function });
        match slots.find(|slot| !taken.contains(slot)) {
            Some(slot) => Ok(slot),
            None => Refusal::rule(format!(
                "more than {FUNCTIONS} disks of a kind: PCI device {device} is full"
            )),
        }
    }
}
