// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The second pass: routes. They lead to an address, or to a NIC that has one.

use std::net::Ipv4Addr;

use super::addresses;
use super::nics::mac;
use super::refusal::Refusal;
use crate::payload::{self, Payload};

/// Checks the routes of a VM with these NICs.
pub(crate) fn check(routes: Option<&Payload>, nics: &[Payload]) -> Result<(), Refusal> {
    for (destination, gateway) in routes.into_iter().flatten() {
        let is_subnet =
            addresses::subnet(destination).is_some_and(|(address, _)| address.is_ipv4());
        if !is_subnet && destination.parse::<Ipv4Addr>().is_err() {
            let what = "(must be IP address or CIDR)";
            return Refusal::rule(format!("Invalid route destination: \"{destination}\" {what}"));
        }
        let Some(gateway) = gateway.as_str() else {
            return Err(Refusal::Dies("a gateway is no text"));
        };
        let nic = match (within(gateway, "nics["), within(gateway, "macs[")) {
            (Some(n), _) => n.parse().ok().and_then(|n: usize| nics.get(n)),
            (_, Some(wanted)) => nics.iter().find(|nic| {
                mac(wanted).is_some() && payload::text(nic, "mac").and_then(mac) == mac(wanted)
            }),
            (None, None) if gateway.parse::<Ipv4Addr>().is_ok() => continue,
            (None, None) => {
                let what = "(must be IP address, MAC address, or nic)";
                return Refusal::rule(format!("Invalid route gateway: \"{gateway}\" {what}"));
            }
        };
        let is_fixed =
            |nic: &Payload| addresses::ips(nic).iter().any(|ip| !addresses::is_dynamic(ip));
        if !nic.is_some_and(is_fixed) {
            return Refusal::rule(format!(
                "Route gateway: \"{gateway}\" refers to non-existent or DHCP nic"
            ));
        }
    }
    Ok(())
}

fn within<'a>(text: &'a str, head: &str) -> Option<&'a str> {
    text.strip_prefix(head)?.strip_suffix(']')
}
