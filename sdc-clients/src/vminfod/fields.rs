// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The fields of a VM object by name and type. `None` means that the object does not say: the field is
//! missing or of another type. Pure.

use serde_json::Value;

use super::types::VmObject;
use crate::mac::MacAddr;

/// The fields of a VM object, for a [`VmObject`] and for a [`Vm`](super::Vm).
///
/// ```
/// use sdc_clients::vminfod::{VmFields, VmObject};
///
/// fn is_running_lx(vm: &VmObject) -> bool {
///     vm.brand() == Some("lx") && vm.state() == Some("running") && !vm.is_hidden()
/// }
/// ```
pub trait VmFields {
    /// Any field that is a text.
    fn text(&self, field: &str) -> Option<&str>;

    /// Any field that is true or false, also as a text.
    fn flag(&self, field: &str) -> Option<bool>;

    /// Any field that is a whole number from 0 on.
    fn number(&self, field: &str) -> Option<u64>;

    /// Its NICs. `None` is not "no NICs": a VM without any has an empty list.
    fn nics(&self) -> Option<impl Iterator<Item = VmNic<'_>>>;

    /// The MACs of its NICs, as far as they can be read.
    fn macs(&self) -> Vec<MacAddr> {
        self.nics().into_iter().flatten().filter_map(|nic| nic.mac()).collect()
    }

    /// The uuid.
    fn uuid(&self) -> Option<&str> {
        self.text("uuid")
    }

    /// The name of its zone, which is the uuid unless an operator made the zone by hand.
    fn zonename(&self) -> Option<&str> {
        self.text("zonename")
    }

    /// The name that people gave it.
    fn alias(&self) -> Option<&str> {
        self.text("alias")
    }

    /// `joyent`, `joyent-minimal`, `lx`, `kvm`, `bhyve`, …
    fn brand(&self) -> Option<&str> {
        self.text("brand")
    }

    /// vmadm's state: `running`, `stopped`, `provisioning`, `failed`, …
    fn state(&self) -> Option<&str> {
        self.text("state")
    }

    /// zoneadm's state: `running`, `installed`, `shutting_down`, …
    fn zone_state(&self) -> Option<&str> {
        self.text("zone_state")
    }

    /// The uuid of its owner.
    fn owner_uuid(&self) -> Option<&str> {
        self.text("owner_uuid")
    }

    /// The uuid of the node it is on (`server_uuid`).
    fn node_uuid(&self) -> Option<&str> {
        self.text("server_uuid")
    }

    /// The quota of its dataset in GiB.
    fn quota(&self) -> Option<u64> {
        self.number("quota")
    }

    /// Returns true if the inventory is to leave this VM out (`do_not_inventory`).
    fn is_hidden(&self) -> bool {
        self.flag("do_not_inventory") == Some(true)
    }
}

impl VmFields for VmObject {
    fn text(&self, field: &str) -> Option<&str> {
        self.get(field).and_then(Value::as_str)
    }

    fn flag(&self, field: &str) -> Option<bool> {
        self.get(field).and_then(flag)
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.get(field).and_then(Value::as_u64)
    }

    fn nics(&self) -> Option<impl Iterator<Item = VmNic<'_>>> {
        Some(self.get("nics")?.as_array()?.iter().map(VmNic))
    }
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// One NIC of a VM object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmNic<'a>(&'a Value);

impl<'a> VmNic<'a> {
    /// Any field of it.
    pub fn get(self, field: &str) -> Option<&'a Value> {
        self.0.get(field)
    }

    fn text(self, field: &str) -> Option<&'a str> {
        self.get(field).and_then(Value::as_str)
    }

    /// The MAC.
    pub fn mac(self) -> Option<MacAddr> {
        self.text("mac")?.parse().ok()
    }

    /// The first address: an IPv4 address or `dhcp`.
    pub fn ip(self) -> Option<&'a str> {
        self.text("ip")
    }

    /// The tag of the physical network.
    pub fn nic_tag(self) -> Option<&'a str> {
        self.text("nic_tag")
    }

    /// The uuid of NAPI's network.
    pub fn network_uuid(self) -> Option<&'a str> {
        self.text("network_uuid")
    }

    /// Returns true if the VM's default route goes through it.
    pub fn is_primary(self) -> bool {
        self.get("primary").and_then(flag) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(value: Value) -> VmObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn fields_of_another_type_are_not_there() {
        let good = vm(json!({"alias": "web-0", "quota": 10, "do_not_inventory": "true", "nics": [
            {"mac": "f2:dd:44:95:76:d8", "primary": true, "ip": "dhcp"}, {"mac": "nonsense"}]}));
        assert_eq!((good.alias(), good.quota(), good.is_hidden()), (Some("web-0"), Some(10), true));
        assert_eq!(good.macs(), ["f2:dd:44:95:76:d8".parse().unwrap()]);
        let nics: Vec<VmNic<'_>> = good.nics().unwrap().collect();
        assert!(nics[0].is_primary() && !nics[1].is_primary());
        assert_eq!((nics[0].ip(), nics[1].mac()), (Some("dhcp"), None));

        let odd = vm(json!({"alias": 5, "quota": "10", "do_not_inventory": 1, "nics": "none"}));
        assert_eq!((odd.alias(), odd.quota(), odd.is_hidden()), (None, None, false));
        assert!(odd.nics().is_none() && odd.macs().is_empty());
        assert_eq!(vm(json!({"nics": []})).nics().map(Iterator::count), Some(0));
    }
}
