// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The NICs of the payload. NAPI's records of them stay as they are.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::unfit::{NicFault, Unfit};
use crate::carried::{self, Brands, How, Row, entries, text};

/// Returns the NICs as `vmadm create` takes them; by their places they get their interfaces.
pub fn nics(source: &Map<String, Value>, brand: &str, unfit: &mut Vec<Unfit>) -> Value {
    let all = entries(source, "nics");
    let has_driver = text(source, "nic_driver").is_some_and(|driver| !driver.is_empty());
    let (mut macs, mut has_primary) = (BTreeSet::new(), false);
    let mut made = Vec::new();
    for nic in &all {
        let mac = text(nic, "mac").unwrap_or_default().to_owned();
        let mut bad = |why| unfit.push(Unfit::Nic { nic: mac.clone(), why });
        let kept = nic_of(nic, brand, &mut bad);
        if !kept.get("nic_tag").and_then(Value::as_str).is_some_and(is_tag) {
            bad(NicFault::NoTag);
        }
        if Brands::HVM.has(brand) && !has_driver && !kept.contains_key("model") {
            bad(NicFault::NoModel);
        }
        let is_alone = |key: &str| !kept.contains_key(key);
        if text(nic, "ip").is_some_and(|ip| ip != "dhcp") && is_alone("ips") && is_alone("netmask")
        {
            bad(NicFault::NoNetmask);
        }
        if !macs.insert(mac.clone()) {
            bad(NicFault::Mac);
        }
        let is_primary = kept.get("primary") == Some(&json!(true));
        if is_primary && has_primary {
            bad(NicFault::Primary);
        }
        has_primary |= is_primary;
        if !is_vrrp_whole(nic, &all) {
            bad(NicFault::Vrrp);
        }
        made.push(Value::Object(kept));
    }
    Value::Array(made)
}

/// Returns a NIC as `vmadm` takes it.
pub fn nic_of(
    nic: &Map<String, Value>,
    brand: &str,
    bad: &mut impl FnMut(NicFault),
) -> Map<String, Value> {
    let is_given =
        |row: &&Row| row.brands.has(brand) && matches!(row.how, How::Given(_) | How::Once);
    let mut kept = Map::new();
    for row in carried::NICS.iter().filter(is_given) {
        match row.value(nic) {
            Ok(None) => {}
            Ok(Some(value)) => drop(kept.insert(row.key.into(), value)),
            Err(carried::Unfit) => bad(NicFault::Value(row.key)),
        }
    }
    kept
}

fn is_tag(tag: &str) -> bool {
    !tag.is_empty() && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/')
}

fn is_vrrp_whole(nic: &Map<String, Value>, all: &[&Map<String, Value>]) -> bool {
    let Some(id) = nic.get("vrrp_vrid").and_then(Value::as_u64) else { return true };
    let Some(primary) = text(nic, "vrrp_primary_ip") else { return false };
    let others = all.iter().filter(|other| other.get("mac") != nic.get("mac"));
    let mut plain = others.filter(|other| !other.contains_key("vrrp_vrid"));
    let has = |other: &&Map<String, Value>| {
        let ips = other.get("ips").and_then(Value::as_array).into_iter().flatten();
        let mut ips = ips.filter_map(Value::as_str).filter_map(|ip| ip.split('/').next());
        text(other, "ip") == Some(primary) || ips.any(|ip| ip == primary)
    };
    let is_its_mac = text(nic, "mac") == Some(&format!("00:00:5e:00:01:{id:02x}"));
    is_its_mac && plain.any(has)
}
