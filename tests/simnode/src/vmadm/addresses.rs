// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The addresses of a NIC: `ip`, `netmask` and `gateway` of old become `ips` and `gateways`.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::payload::{self, Payload};

const MOST_ADDRESSES: usize = 20;
const MOST_ALLOWED: usize = 13;
const MOST_OF_BOTH: usize = 32;

/// The length of the prefix that a netmask stands for.
pub(crate) fn prefix_of(netmask: &str) -> Option<u32> {
    let bits = netmask.parse::<Ipv4Addr>().ok()?.to_bits();
    (bits.count_ones() == bits.leading_ones()).then(|| bits.count_ones())
}

/// The netmask of a prefix.
fn netmask_of(prefix: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0))
}

/// Splits `ADDRESS/PREFIX`.
pub(crate) fn subnet(text: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
    let is_good = match address {
        IpAddr::V4(_) => (8..=32).contains(&prefix),
        IpAddr::V6(_) => prefix <= 128,
    };
    is_good.then_some((address, prefix))
}

/// Returns true for the words of addresses that the guest gets by itself.
pub(crate) fn is_dynamic(text: &str) -> bool {
    matches!(text, "dhcp" | "addrconf")
}

/// The addresses of a NIC.
pub(crate) fn ips(nic: &Payload) -> Vec<&str> {
    nic.get("ips")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The `ip` and `netmask` that a configuration has beside `ips`.
pub(crate) fn first(nic: &Payload) -> (Option<String>, Option<String>) {
    let ips = ips(nic);
    let mut fixed =
        ips.iter().filter_map(|text| subnet(text)).filter(|(address, _)| address.is_ipv4());
    let given = payload::text(nic, "netmask").map(str::to_string);
    match fixed.next() {
        Some((address, prefix)) => {
            (Some(address.to_string()), given.or_else(|| Some(netmask_of(prefix).to_string())))
        }
        None if ips.contains(&"dhcp") => (Some("dhcp".to_string()), given),
        None => (None, given),
    }
}

/// Names the NIC in an answer.
pub(crate) fn shown(nic: &Payload) -> String {
    serde_json::to_string(nic).unwrap_or_default()
}

/// Makes `ips` and `gateways` of what is given, and checks them. A NIC that is changed keeps its netmask.
pub(crate) fn settle(
    nic: &mut Payload,
    old_netmask: Option<&str>,
    is_new: bool,
) -> Result<(), Refusal> {
    let given = payload::text(nic, "netmask").filter(|mask| !mask.is_empty());
    if given.is_some_and(|mask| prefix_of(mask).is_none()) {
        return Refusal::rule(format!("Invalid netmask for NIC: {}", shown(nic)));
    }
    if nic.contains_key("ips") {
        nic.shift_remove("ip");
    } else if let Some(ip) = payload::text(nic, "ip").map(str::to_string) {
        let mask = payload::text(nic, "netmask").or(old_netmask).and_then(prefix_of);
        let ips = match (ip.as_str(), mask) {
            ("dhcp", _) => ip,
            (_, Some(prefix)) => format!("{ip}/{prefix}"),
            (_, None) => {
                return Refusal::rule(format!("Missing .netmask option for NIC: {}", shown(nic)));
            }
        };
        replace(nic, "ip", "ips", json!([ips]));
        nic.shift_remove("netmask");
    } else if is_new {
        nic.insert("ips".to_string(), json!([]));
    }
    if nic.contains_key("gateways") {
        nic.shift_remove("gateway");
    } else if let Some(gateway) = nic.get("gateway").filter(|gateway| !gateway.is_null()).cloned() {
        replace(nic, "gateway", "gateways", json!([gateway]));
    }
    check(nic)
}

/// Puts another property in the place of one.
fn replace(nic: &mut Payload, old: &str, new: &str, value: Value) {
    let at = nic.keys().position(|name| name == old).unwrap_or(nic.len());
    nic.shift_remove(old);
    nic.shift_insert(at.min(nic.len()), new.to_string(), value);
}

fn check(nic: &Payload) -> Result<(), Refusal> {
    let texts = |name: &str| -> Vec<&str> {
        nic.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    };
    let (ips, allowed) = (texts("ips"), texts("allowed_ips"));
    let is_list = nic.get("ips").is_none_or(Value::is_array);
    if !is_list || ips.iter().any(|text| !is_dynamic(text) && subnet(text).is_none()) {
        return Refusal::rule(format!("Invalid IP for NIC: {}", shown(nic)));
    }
    if ips.len() > MOST_ADDRESSES {
        let (has, most) = (ips.len(), MOST_ADDRESSES);
        return Refusal::rule(format!(
            "nic.*.ips contains {has} addresses, but is limited to {most}"
        ));
    }
    if texts("gateways").iter().any(|text| text.parse::<Ipv4Addr>().is_err()) {
        return Refusal::rule(format!("Invalid gateway for NIC: {}", shown(nic)));
    }
    let is_address = |text: &&&str| text.parse::<IpAddr>().is_ok() || subnet(text).is_some();
    if let Some(wrong) = allowed.iter().find(|text| !is_address(text)) {
        return Refusal::rule(format!("invalid allowed_ips: {wrong}"));
    }
    if allowed.len() > MOST_ALLOWED {
        return Refusal::rule(format!("Maximum of {MOST_ALLOWED} allowed_ips per nic"));
    }
    let all = ips.len() + allowed.len() + usize::from(nic.contains_key("vrrp_primary_ip"));
    match all > MOST_OF_BOTH {
        true => {
            Refusal::rule(format!("a NIC has {all} addresses, but is limited to {MOST_OF_BOTH}"))
        }
        false => Ok(()),
    }
}
