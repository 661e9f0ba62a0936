// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration of a NIC.

use serde_json::{Value, json};

use super::places::Form;
use crate::payload::{self, Payload};
use crate::vmadm::{addresses, forms, nics};
use crate::xml::Element;

/// The fields of a NIC that are stored in a `net-attr`, besides its addresses.
const NIC_ATTRS: [(&str, Form); 15] = [
    ("network_uuid", Form::Text),
    ("model", Form::Text),
    ("primary", Form::Flag),
    ("mtu", Form::Number),
    ("dhcp_server", Form::Flag),
    ("allowed_ips", Form::List),
    ("allow_dhcp_spoofing", Form::Flag),
    ("allow_ip_spoofing", Form::Flag),
    ("allow_mac_spoofing", Form::Flag),
    ("allow_restricted_traffic", Form::Flag),
    ("allow_unfiltered_promisc", Form::Flag),
    ("blocked_outgoing_ports", Form::List),
    ("vrrp_vrid", Form::Number),
    ("vrrp_primary_ip", Form::Text),
    ("allowed_dhcp_cids", Form::List),
];

/// Returns true if it is the configuration of the NIC with this MAC.
pub(super) fn has_mac(element: &Element, mac: &str) -> bool {
    element.name == "network"
        && nics::mac(mac).is_some()
        && element.get("mac-addr").and_then(nics::mac) == nics::mac(mac)
}

/// The configuration of a NIC. What is null prints as that word.
pub(super) fn network(nic: &Payload) -> Element {
    let get = |key: &str| payload::text(nic, key).unwrap_or_default();
    let mac = nics::whole_mac(get("mac"));
    let mut element =
        Element::new("network", &[("physical", get("interface")), ("mac-addr", &mac)]);
    if let Some(vlan) = nic.get("vlan_id") {
        element.put("vlan-id", &forms::printed(vlan));
    }
    element.put("global-nic", get("nic_tag"));
    let (ip, netmask) = addresses::first(nic);
    let gateways: Vec<String> = nic
        .get("gateways")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(forms::printed)
        .collect();
    let ips = addresses::ips(nic).join(",");
    let texts = [
        ("ip", ip),
        ("ips", Some(ips)),
        ("netmask", netmask),
        ("gateway", gateways.first().cloned()),
        ("gateways", Some(gateways.join(","))),
    ];
    for (key, text) in texts {
        element.set_value("net-attr", key, text.filter(|text| !text.is_empty()).as_deref());
    }
    for (key, form) in NIC_ATTRS {
        let Some(value) = nic.get(key) else { continue };
        let text = match form {
            Form::Flag => Some("true".to_string()).filter(|_| forms::is_true(value)),
            _ => Some(forms::printed(value)).filter(|text| !text.is_empty()),
        };
        element.set_value("net-attr", key, text.as_deref());
    }
    element
}

/// The NIC of a configuration.
pub(super) fn read(element: &Element) -> Payload {
    let mut nic = Payload::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            nic.insert(key.to_string(), value);
        }
    };
    let text = |value: Option<&str>| value.map(|text| json!(text));
    let list = |text: &str| json!(text.split(',').collect::<Vec<_>>());
    let value = |key: &str| element.value("net-attr", key);
    put("interface", text(element.get("physical")));
    put("mac", text(element.get("mac-addr")));
    put(
        "vlan_id",
        element
            .get("vlan-id")
            .map(|id| id.parse::<u64>().map_or_else(|_| json!(id), |id| json!(id))),
    );
    put("nic_tag", text(element.get("global-nic")));
    put("netmask", text(value("netmask")));
    let of_ip = || {
        let ip = value("ip")?;
        let prefix = value("netmask").and_then(addresses::prefix_of);
        Some(prefix.map_or_else(|| ip.to_string(), |prefix| format!("{ip}/{prefix}")))
    };
    put("ips", value("ips").map(list).or_else(|| of_ip().map(|ip| json!([ip]))));
    put("gateways", value("gateways").or(value("gateway")).map(list));
    for (key, form) in NIC_ATTRS {
        put(
            key,
            value(key).map(|text| match form {
                Form::Flag => json!(text == "true"),
                Form::List => list(text),
                Form::Number => text.parse::<i64>().map_or_else(|_| json!(text), |n| json!(n)),
                _ => json!(text),
            }),
        );
    }
    nic
}

/// A NIC with changes of it. New addresses bring their netmask along.
pub(super) fn changed(old: &Payload, change: &Payload) -> Payload {
    let mut nic = old.clone();
    if change.contains_key("ips") {
        nic.shift_remove("netmask");
    }
    nic.extend(change.iter().filter(|(key, _)| *key != "mac").map(|(k, v)| (k.clone(), v.clone())));
    nic
}
