// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Changing a NIC.

use super::eras::Era;
use super::errors::{ApiError, differing};
use super::ips::Holder;
use super::rows::NicRow;
use super::store::World;
use crate::restify::Params;

impl World {
    /// Applies the named keys to the NIC and stores it.
    pub(super) fn update_nic(
        &mut self,
        mac: u64,
        given: &Params,
        now: i64,
    ) -> Result<NicRow, ApiError> {
        let (input, errors) = self.check_input(given);
        if !errors.is_empty() {
            return Err(ApiError::Invalid(errors));
        }
        let Some(old) = self.nics.get(&mac).cloned() else { return Err(ApiError::NotFound("nic")) };
        let mut row = old.clone();
        macro_rules! set {
            ($($field:ident),*) => {$(
                if let Some(value) = input.$field.clone() {
                    row.$field = value;
                }
            )*};
        }
        set!(belongs_to_type, belongs_to_uuid, owner_uuid, primary, state, nic_tags_provided);
        if input.cn_uuid.is_some() {
            row.cn_uuids = input.cn_uuid.iter().cloned().collect();
            row.cn_in_array = input.cn_in_array;
        }
        row.model = input.model.clone().or(row.model);
        for (slot, flag) in row.flags.iter_mut().zip(input.flags) {
            *slot = flag.unwrap_or(*slot);
        }
        if row.flags.last() == Some(&true) && row.belongs_to_type != "server" {
            return Err(ApiError::invalid("underlay", "Only server NICs can be underlay NICs"));
        }
        let current = old.address.as_ref().map(|(network, _)| network.clone());
        let target = self.resolve_network(&input, current.as_deref())?;
        let holder = Holder {
            belongs_to_type: row.belongs_to_type.clone(),
            belongs_to_uuid: row.belongs_to_uuid.clone(),
            owner_uuid: row.owner_uuid.clone(),
            reserved: input.reserved,
        };
        match (target, &old.address) {
            (Some(target), None) => {
                self.check_use(&target, &input, &row.owner_uuid, !row.cn_uuids.is_empty())?;
                row.address = Some(self.provision(&target, input.ip, &holder)?);
            }
            (Some(target), Some((network, ip))) if input.ip.is_some_and(|new| new != *ip) => {
                self.check_tags_agree(&target, network)?;
                self.check_use(&target, &input, &row.owner_uuid, !row.cn_uuids.is_empty())?;
                row.address = Some(self.provision(&target, input.ip, &holder)?);
                self.release_ip(network, *ip, &old.belongs_to_uuid);
            }
            (target, Some(_)) => {
                if let Some(target) = &target {
                    self.check_use(target, &input, &row.owner_uuid, !row.cn_uuids.is_empty())?;
                }
                // The address stays; only the tag of the named network is taken over.
                if let Some(tag) =
                    target.and_then(|t| self.networks.get(&t)).map(|n| n.nic_tag.clone())
                {
                    row.nic_tag = Some(tag);
                }
                self.rewrite_ip(&row, &old, input.reserved);
            }
            (None, None) => row.nic_tag = input.own_tag().or(row.nic_tag),
        }
        if row.address != old.address && self.era != Era::Old2015 {
            row.nic_tag = row
                .address
                .as_ref()
                .and_then(|(n, _)| self.networks.get(n))
                .map(|n| n.nic_tag.clone());
        }
        row.modified = now.max(old.modified + 1);
        Ok(self.put_nic(row))
    }

    fn check_tags_agree(&self, target: &str, current: &str) -> Result<(), ApiError> {
        let tag =
            |uuid: &str| self.networks.get(uuid).map(|n| n.nic_tag.clone()).unwrap_or_default();
        let (new, old) = (tag(target), tag(current));
        if new == old {
            return Ok(());
        }
        Err(differing("nic_tag", &new, &old))
    }

    /// The address record follows its NIC.
    fn rewrite_ip(&mut self, row: &NicRow, old: &NicRow, reserved: Option<bool>) {
        let changed = self.tick();
        let Some((network, ip)) = &row.address else { return };
        let Some(record) = self.networks.get_mut(network).and_then(|n| n.ips.get_mut(ip)) else {
            return;
        };
        if record.belongs_to_uuid.as_ref().is_some_and(|uuid| *uuid != old.belongs_to_uuid) {
            return;
        }
        record.belongs_to_type = Some(row.belongs_to_type.clone());
        record.belongs_to_uuid = Some(row.belongs_to_uuid.clone());
        record.owner_uuid = Some(row.owner_uuid.clone());
        record.reserved = reserved.unwrap_or(record.reserved);
        record.changed = changed;
    }
}
