// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The second pass: NICs, new ones and changes of those that are there.

use serde_json::{Value, json};

use super::addresses::{self, shown};
use super::forms::is_true;
use super::surroundings::Surroundings;
use crate::payload::{self, Payload};
use crate::refusal::Refusal;

/// What the NICs of a payload are for.
pub(crate) struct Of<'a> {
    /// The brand of the VM.
    pub(crate) brand: &'a str,
    /// The model where a NIC has none.
    pub(crate) driver: Option<&'a str>,
    /// The NICs that the VM has.
    pub(crate) old: &'a [Payload],
}

/// The six bytes of a MAC address, in any notation of hex parts with colons.
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let parts: Option<Vec<u8>> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| (1..=2).contains(&part.len())))
        .collect();
    parts?.try_into().ok()
}

/// A MAC as zonecfg stores it: two digits each. What is no MAC stays.
pub(crate) fn whole_mac(text: &str) -> String {
    let pairs = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    mac(text).map_or_else(|| text.to_string(), pairs)
}

fn mac_of(nic: &Payload) -> Option<[u8; 6]> {
    payload::text(nic, "mac").and_then(mac)
}

/// The NIC with this MAC.
pub(crate) fn find<'a>(nics: &'a [Payload], wanted: &Payload) -> Option<&'a Payload> {
    let wanted = mac_of(wanted);
    nics.iter().find(|nic| wanted.is_some() && mac_of(nic) == wanted)
}

fn is_primary(nic: &Payload) -> bool {
    nic.get("primary").is_some_and(is_true)
}

fn number(nic: &Payload, name: &str) -> Option<u64> {
    let value = nic.get(name)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Completes and checks the new NICs; they are named by their place.
pub(crate) fn complete(
    nics: &mut [&mut Payload],
    of: &Of<'_>,
    around: &mut Surroundings,
) -> Result<(), Refusal> {
    for nic in nics.iter_mut() {
        rename(nic);
        addresses::settle(nic, None, true)?;
        model(nic, of)?;
        if nic.get("primary").is_some_and(|primary| !is_true(primary)) {
            nic.shift_remove("primary");
        }
        own_mac(nic, around)?;
    }
    if nics.iter().filter(|nic| is_primary(nic)).count() > 1 {
        return Refusal::rule("payload specifies more than 1 primary NIC");
    }
    distinct(nics, of)?;
    for (n, nic) in nics.iter().enumerate() {
        tag(nic, n, true, around)?;
    }
    vrrp(nics, of)?;
    let stem = if of.brand == "lx" { "eth" } else { "net" };
    let taken: Vec<&str> =
        of.old.iter().filter_map(|nic| payload::text(nic, "interface")).collect();
    let mut names =
        (0..).map(|n: usize| format!("{stem}{n}")).filter(|name| !taken.contains(&name.as_str()));
    for nic in nics.iter_mut() {
        nic.insert("interface".to_string(), json!(names.next()));
    }
    Ok(())
}

/// Completes and checks changes of NICs that are there.
pub(crate) fn change(
    nics: &mut [&mut Payload],
    of: &Of<'_>,
    around: &Surroundings,
) -> Result<(), Refusal> {
    for (n, nic) in nics.iter_mut().enumerate() {
        let Some(old) = find(of.old, nic) else {
            return Refusal::rule("There is no existing NIC with that mac address");
        };
        if let Some(given) = nic.get("primary").filter(|given| !is_true(given)) {
            return Refusal::rule(format!(
                "invalid value for NIC's primary flag: {given} (must be true)"
            ));
        }
        addresses::settle(nic, payload::text(old, "netmask"), false)?;
        tag(nic, n, false, around)?;
    }
    Ok(())
}

/// `interface` is only what an older payload called it.
fn rename(nic: &mut Payload) {
    if let Some(given) = nic.shift_remove("interface") {
        nic.insert("physical".to_string(), given);
    }
}

fn model(nic: &mut Payload, of: &Of<'_>) -> Result<(), Refusal> {
    if !payload::is_hvm(of.brand)
        || payload::text(nic, "model").is_some_and(|model| !model.is_empty())
    {
        return Ok(());
    }
    match of.driver {
        Some(driver) => nic.insert("model".to_string(), json!(driver)),
        None => return Refusal::rule(format!("missing .model option for NIC: {}", shown(nic))),
    };
    Ok(())
}

/// The MAC of a NIC that has none: of its router, or random and local.
fn own_mac(nic: &mut Payload, around: &mut Surroundings) -> Result<(), Refusal> {
    let vrid = number(nic, "vrrp_vrid");
    let of_router = vrid.map(|vrid| format!("00:00:5e:00:01:{vrid:02x}"));
    match (payload::text(nic, "mac"), of_router) {
        (Some(given), Some(own)) if mac(given) != mac(&own) => {
            Refusal::rule("Cannot set both mac and vrrp_vrid")
        }
        (Some(given), _) if mac(given).is_none() => Refusal::rule(format!("invalid mac: {given}")),
        (Some(_), _) => Ok(()),
        (None, own) => {
            let own = own.unwrap_or_else(|| {
                let random = around.uuid().replace('-', "");
                let byte = |n: usize| random.get(2 * n..2 * n + 2).unwrap_or("80").to_string();
                let parts: Vec<String> = (10..15).map(byte).collect();
                format!("82:{}", parts.join(":"))
            });
            nic.insert("mac".to_string(), json!(own));
            Ok(())
        }
    }
}

/// No two NICs of the VM have the same MAC or address.
fn distinct(nics: &[&mut Payload], of: &Of<'_>) -> Result<(), Refusal> {
    let mut macs: Vec<[u8; 6]> = of.old.iter().filter_map(mac_of).collect();
    let mut ips: Vec<&str> = Vec::new();
    for nic in nics {
        if let Some(own) = mac_of(nic) {
            if macs.contains(&own) {
                let given = payload::text(nic, "mac").unwrap_or_default();
                return Refusal::rule(format!(
                    "Cannot add multiple NICs with the same MAC: {given}"
                ));
            }
            macs.push(own);
        }
        for ip in addresses::ips(nic).into_iter().filter(|ip| !addresses::is_dynamic(ip)) {
            if ips.contains(&ip) {
                return Refusal::rule(format!("Cannot add multiple NICs with the same IP: {ip}"));
            }
            ips.push(ip);
        }
    }
    Ok(())
}

/// The tag is one of the node's, and its packets are no smaller than those of the NIC may be. A change cannot
/// name the tag of an overlay.
fn tag(nic: &Payload, n: usize, is_new: bool, around: &Surroundings) -> Result<(), Refusal> {
    let given = nic.get("nic_tag");
    let is_word = |text: &&str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || is_new && c == '/';
        !text.is_empty() && text.chars().all(fine)
    };
    let name = match given.and_then(Value::as_str).filter(is_word) {
        Some(name) => name,
        None if is_new => {
            return Refusal::rule(format!(
                "invalid or missing .nic_tag option for NIC: {}",
                shown(nic)
            ));
        }
        None if given.is_none() => return Ok(()),
        None => return Refusal::rule(format!("invalid .nic_tag option for NIC: {}", shown(nic))),
    };
    let Some(tag) = around.tag(name) else {
        return Refusal::rule(format!("Invalid nic tag \"{name}\""));
    };
    match (number(nic, "mtu"), tag.mtu) {
        (Some(mtu), Some(least)) if mtu < least => {
            let mac = payload::text(nic, "mac").unwrap_or_default();
            let what = format!("MTU is below the supported MTU ({least}) of nic tag \"{name}\"");
            Refusal::rule(format!("nic {n} ({mac}): {what}"))
        }
        _ => Ok(()),
    }
}

/// The NICs of virtual routers stand on others of the same VM.
fn vrrp(nics: &[&mut Payload], of: &Of<'_>) -> Result<(), Refusal> {
    let is_router = |nic: &Payload| nic.contains_key("vrrp_vrid");
    if !nics.is_empty() && nics.iter().all(|nic| is_router(nic)) && of.old.iter().all(is_router) {
        return Refusal::rule("VM cannot contain only VRRP nics");
    }
    let plain = || nics.iter().map(|nic| &**nic).chain(of.old).filter(|nic| !is_router(nic));
    for nic in nics.iter().filter(|nic| is_router(nic)) {
        let Some(primary) = payload::text(nic, "vrrp_primary_ip") else {
            return Refusal::rule("vrrp_vrid set but not vrrp_primary_ip");
        };
        let has = |nic: &Payload| {
            addresses::ips(nic).iter().any(|ip| ip.split('/').next() == Some(primary))
        };
        if !plain().any(has) {
            return Refusal::rule("vrrp_primary_ip must belong to another NIC of the VM");
        }
    }
    Ok(())
}
