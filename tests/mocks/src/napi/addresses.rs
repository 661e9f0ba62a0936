// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The address routes: list, read, change, search.

use std::net::IpAddr;

use serde_json::Value;

use super::errors::{ApiError, element, missing};
use super::networks::{only, page, text};
use super::params;
use super::render::ip_json;
use super::rows::{IpRow, NicRow};
use super::store::World;
use crate::restify::Params;

impl World {
    pub(super) fn list_ips(&self, network: &str, given: &Params) -> Result<Value, ApiError> {
        let row = self.find_network_by_name(network)?;
        page(given, row.ips.iter().map(|(ip, record)| ip_json(&row.uuid, *ip, record)).collect())
    }

    pub(super) fn get_ip(&self, network: &str, ip: &str) -> Result<Value, ApiError> {
        let row = self.find_network_by_name(network)?;
        let ip: IpAddr = ip.parse().map_err(|_| ApiError::invalid("ip", "invalid IP address"))?;
        if !row.subnet.contains(ip) {
            return Err(ApiError::Plain(404, "ResourceNotFound", "IP is not in subnet".to_owned()));
        }
        Ok(ip_json(&row.uuid, ip, row.ips.get(&ip).unwrap_or(&IpRow::default())))
    }

    pub(super) fn update_ip(
        &mut self,
        network: &str,
        ip: &str,
        given: &Params,
    ) -> Result<Value, ApiError> {
        self.get_ip(network, ip)?;
        let changed = self.tick();
        let flag = |name: &str| {
            given
                .get(name)
                .map(|v| params::boolean(name, v))
                .transpose()
                .map_err(|e| ApiError::Invalid(vec![e]))
        };
        let (reserved, free, unassign) = (flag("reserved")?, flag("free")?, flag("unassign")?);
        let uuid = self.find_network_by_name(network)?.uuid.clone();
        let parsed: IpAddr =
            ip.parse().map_err(|_| ApiError::invalid("ip", "invalid IP address"))?;
        let Some(row) = self.networks.get_mut(&uuid) else {
            return Err(ApiError::NotFound("network"));
        };
        let record = row.ips.entry(parsed).or_default();
        record.changed = changed;
        for (name, slot) in [
            ("belongs_to_type", &mut record.belongs_to_type),
            ("belongs_to_uuid", &mut record.belongs_to_uuid),
            ("owner_uuid", &mut record.owner_uuid),
        ] {
            if let Some(value) = text(given, name) {
                *slot = Some(value);
            }
        }
        record.reserved = reserved.unwrap_or(record.reserved);
        if free == Some(true) {
            *record = IpRow { changed, ..IpRow::default() };
        } else if unassign == Some(true) {
            record.belongs_to_type = None;
            record.belongs_to_uuid = None;
        }
        Ok(ip_json(&uuid, parsed, record))
    }

    /// Which version of its address a NIC has; 0 if there is none.
    pub(super) fn address_version(&self, nic: &NicRow) -> u64 {
        let row = nic.address.as_ref().and_then(|(net, ip)| self.networks.get(net)?.ips.get(ip));
        row.map_or(0, |row| row.changed)
    }

    /// Another writer changes the address of this NIC, if it has one.
    pub(super) fn touch_address(&mut self, mac: u64) {
        let changed = self.tick();
        let address = self.nics.get(&mac).and_then(|nic| nic.address.clone());
        let row = address.and_then(|(net, ip)| self.networks.get_mut(&net)?.ips.get_mut(&ip));
        if let Some(row) = row {
            row.changed = changed;
        }
    }

    /// What is said of the address of a NIC whose write meets one of its address (recorded).
    pub(super) fn taken(&self, nic: &NicRow) -> Value {
        let (net, ip) =
            nic.address.as_ref().map_or(("", String::new()), |(net, ip)| (net, ip.to_string()));
        element("ip", "Duplicate", &format!("IP {ip} exists on network {net}"))
    }

    pub(super) fn search_ips(&self, given: &Params) -> Result<Value, ApiError> {
        let known = ["ip", "belongs_to_type", "belongs_to_uuid", "fabric", "owner_uuid"];
        let mut errors = match only(given, &known) {
            Err(ApiError::Invalid(errors)) => errors,
            _ => Vec::new(),
        };
        let ip = match given.get("ip") {
            None => {
                errors.push(missing("ip"));
                None
            }
            Some(value) => {
                let parsed = value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
                if parsed.is_none() {
                    errors.push(element("ip", "InvalidParameter", "invalid IP address"));
                }
                parsed
            }
        };
        let (Some(ip), true) = (ip, errors.is_empty()) else {
            return Err(ApiError::Invalid(errors));
        };
        let free = IpRow::default();
        let fits = |record: &IpRow| {
            let same = |name: &str, has: &Option<String>| {
                text(given, name).is_none_or(|w| has.as_ref() == Some(&w))
            };
            same("belongs_to_type", &record.belongs_to_type)
                && same("belongs_to_uuid", &record.belongs_to_uuid)
                && same("owner_uuid", &record.owner_uuid)
        };
        let networks = self.networks.values().filter(|n| n.subnet.contains(ip));
        let records = networks.map(|n| (n, n.ips.get(&ip).unwrap_or(&free)));
        let hits = records.filter(|(_, record)| fits(record));
        let hits: Vec<Value> = hits.map(|(n, record)| ip_json(&n.uuid, ip, record)).collect();
        if hits.is_empty() {
            let message = "No networks found matching search criteria".to_owned();
            return Err(ApiError::Plain(404, "ResourceNotFound", message));
        }
        Ok(Value::Array(hits))
    }

    /// Whether the address has a record of its own.
    pub(super) fn has_ip(&self, network: &str, ip: &str) -> bool {
        let row = self.find_network_by_name(network).ok();
        row.zip(ip.parse().ok()).is_some_and(|(row, ip)| row.ips.contains_key(&ip))
    }
}
