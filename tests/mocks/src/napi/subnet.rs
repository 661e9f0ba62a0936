// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Address ranges.

use std::net::IpAddr;

/// An address range in CIDR form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Subnet {
    base: u128,
    prefix: u32,
    v6: bool,
}

pub(super) fn to_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl Subnet {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let ip: IpAddr = ip.parse().ok()?;
        let prefix: u32 = prefix.parse().ok()?;
        let bits = if ip.is_ipv6() { 128 } else { 32 };
        (prefix <= bits).then(|| Self { base: to_number(ip), prefix, v6: ip.is_ipv6() })
    }

    fn bits(self) -> u32 {
        if self.v6 { 128 } else { 32 }
    }

    pub(super) fn is_v6(self) -> bool {
        self.v6
    }

    fn host_mask(self) -> u128 {
        let host = self.bits() - self.prefix;
        if host == 128 { u128::MAX } else { (1 << host) - 1 }
    }

    pub(super) fn address(self, number: u128) -> IpAddr {
        if self.v6 {
            IpAddr::V6(number.into())
        } else {
            IpAddr::V4(u32::try_from(number).unwrap_or(u32::MAX).into())
        }
    }

    pub(super) fn contains(self, ip: IpAddr) -> bool {
        ip.is_ipv6() == self.v6
            && to_number(ip) & !self.host_mask() == self.base & !self.host_mask()
    }

    pub(super) fn broadcast(self) -> IpAddr {
        self.address(self.base | self.host_mask())
    }

    pub(super) fn netmask(self) -> String {
        self.address(u128::from(u32::MAX) & !self.host_mask()).to_string()
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(self.base), self.prefix)
    }
}
