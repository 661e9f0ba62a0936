// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A network element → an entry of `nics`.

use super::rules::{Rule, Table, entry, text};
use crate::js::to_number;
use crate::object::VmObject;
use crate::origin::ParseError;
use crate::parse::zone_xml::Element;

static NETWORK: Table = Table::new(&[
    (Rule::Text, "physical:interface mac-addr:mac global-nic:nic_tag"),
    (Rule::Number, "vlan-id"),
]);

static NETWORK_PAIRS: Table = Table::new(&[
    (
        Rule::Bool,
        "allow_dhcp_spoofing allow_ip_spoofing allow_mac_spoofing allow_restricted_traffic \
         allow_unfiltered_promisc dhcp_server primary",
    ),
    (Rule::List, "allowed_dhcp_cids allowed_ips gateways ips"),
    (Rule::Numbers, "blocked_outgoing_ports"),
    (Rule::Text, "gateway ip model netmask network_uuid vrrp_primary_ip"),
    (Rule::Number, "mtu vrrp_vrid"),
]);

pub(super) fn nic(network: Element<'_>) -> Result<VmObject, ParseError> {
    entry(&NETWORK, &NETWORK_PAIRS, network)
}

/// Returns the number to sort a NIC by: the N of `netN`, or 0 for another name such as lx's `ethN`.
pub(super) fn rank(nic: &VmObject) -> f64 {
    let interface = text(nic, "interface").unwrap_or_default();
    interface.strip_prefix("net").map_or(0.0, index)
}

/// Returns the value of decimal digits; 0 for any other text.
pub(super) fn index(digits: &str) -> f64 {
    if digits.bytes().all(|b| b.is_ascii_digit()) { to_number(digits) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::rules::set;
    use super::*;

    #[test]
    fn ranks() {
        for (interface, n) in [
            ("net10", 10.0),
            ("net2", 2.0),
            ("net", 0.0),
            ("eth7", 0.0),
            ("net1x", 0.0),
            ("xnet3", 0.0),
        ] {
            let mut nic = VmObject::new();
            set(&mut nic, "interface", interface);
            assert_eq!(rank(&nic), n, "{interface}");
        }
        assert_eq!(rank(&VmObject::new()), 0.0);
    }
}
