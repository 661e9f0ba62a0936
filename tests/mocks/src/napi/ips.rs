// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The addresses of a network: which one comes next, who holds one.

use std::net::IpAddr;

use super::errors::{ApiError, element, used_by};
use super::rows::{IpRow, NetworkRow};
use super::store::World;
use super::subnet::to_number;

/// Who gets an address.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) belongs_to_type: String,
    pub(super) belongs_to_uuid: String,
    pub(super) owner_uuid: String,
    pub(super) reserved: Option<bool>,
}

impl NetworkRow {
    /// The address to hand out next: the lowest never used one, else the one freed first.
    fn next(&self) -> Option<IpAddr> {
        let (start, end) = (to_number(self.start), to_number(self.end));
        let mut candidate = start;
        for ip in self.ips.range(self.start..=self.end).map(|(ip, _)| to_number(*ip)) {
            if ip != candidate {
                break;
            }
            candidate += 1;
        }
        if candidate <= end {
            return Some(self.subnet.address(candidate));
        }
        self.ips
            .range(self.start..=self.end)
            .filter(|(_, row)| row.is_free())
            .min_by_key(|(_, row)| row.changed)
            .map(|(ip, _)| *ip)
    }

    /// Fails if somebody else holds the address.
    pub(super) fn check_free(&self, ip: IpAddr, admin: &str) -> Result<(), ApiError> {
        let Some(row) = self.ips.get(&ip) else { return Ok(()) };
        let (Some(kind), Some(uuid)) = (&row.belongs_to_type, &row.belongs_to_uuid) else {
            return Ok(());
        };
        if kind == "other" && uuid == admin {
            return Ok(());
        }
        Err(ApiError::Invalid(vec![used_by(kind, uuid, "IP in use", Some("ip"))]))
    }
}

impl World {
    /// Gives the address (or the next free one) of the network to the holder.
    pub(super) fn take_ip(
        &mut self,
        network: &str,
        ip: Option<IpAddr>,
        holder: &Holder,
    ) -> Result<IpAddr, ApiError> {
        let changed = self.tick();
        let Some(row) = self.networks.get_mut(network) else {
            return Err(ApiError::invalid("network_uuid", "network does not exist"));
        };
        let ip = match ip {
            Some(ip) => {
                row.check_free(ip, &self.admin_uuid)?;
                ip
            }
            None => row.next().ok_or_else(|| ApiError::SubnetFull(network.to_owned()))?,
        };
        let reserved =
            holder.reserved.unwrap_or_else(|| row.ips.get(&ip).is_some_and(|old| old.reserved));
        row.ips.insert(
            ip,
            IpRow {
                reserved,
                belongs_to_type: Some(holder.belongs_to_type.clone()),
                belongs_to_uuid: Some(holder.belongs_to_uuid.clone()),
                owner_uuid: Some(holder.owner_uuid.clone()),
                changed,
            },
        );
        Ok(ip)
    }

    /// Takes the address back if the NIC's owner still holds it; a reservation stays.
    pub(super) fn release_ip(&mut self, network: &str, ip: IpAddr, belongs_to_uuid: &str) {
        let changed = self.tick();
        let Some(row) = self.networks.get_mut(network).and_then(|n| n.ips.get_mut(&ip)) else {
            return;
        };
        if row.belongs_to_uuid.as_deref() != Some(belongs_to_uuid) {
            return;
        }
        row.belongs_to_type = None;
        row.belongs_to_uuid = None;
        row.changed = changed;
        if !row.reserved {
            row.owner_uuid = None;
        }
    }

    /// The network that holds the address among those of a tag and VLAN.
    pub(super) fn find_network(
        &self,
        tag: &str,
        vlan: u16,
        ip: IpAddr,
    ) -> Result<String, ApiError> {
        let (tag_name, vnet) = match tag.split_once('/') {
            Some((name, vnet)) => (name, vnet.parse::<u32>().ok()),
            None => (tag, None),
        };
        let found: Vec<&String> = self
            .networks
            .values()
            .filter(|n| {
                n.nic_tag == tag_name
                    && n.vnet == vnet
                    && n.vlan_id == vlan
                    && n.subnet.contains(ip)
            })
            .map(|n| &n.uuid)
            .collect();
        match found.as_slice() {
            [only] => Ok((*only).clone()),
            [] => Err(ApiError::invalid(
                "ip",
                &format!(
                    "No networks matching this nic_tag (\"{tag}\") and vlan_id ({vlan}) contained the IP address {ip}"
                ),
            )),
            _ => Err(ApiError::Invalid(vec![element(
                "ip",
                "InvalidParameter",
                "Multiple networks match this IP address; network_uuid must be specified",
            )])),
        }
    }
}
