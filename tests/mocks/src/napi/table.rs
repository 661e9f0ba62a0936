// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The stored NICs, indexed by address and by the two other fields that agents search by. The cost
//! of a request does not grow with the records of other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::rows::NicRow;

type Index = BTreeMap<String, BTreeSet<u64>>;

/// The NICs, in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct Nics {
    rows: BTreeMap<u64, NicRow>,
    by_cn: Index,
    by_vm: Index,
}

impl Deref for Nics {
    type Target = BTreeMap<u64, NicRow>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Nics {
    /// Stores a row in place of an older one of its address.
    pub(super) fn insert(&mut self, row: NicRow) {
        self.remove(row.mac);
        for cn in &row.cn_uuids {
            self.by_cn.entry(cn.to_lowercase()).or_default().insert(row.mac);
        }
        self.by_vm.entry(row.belongs_to_uuid.clone()).or_default().insert(row.mac);
        self.rows.insert(row.mac, row);
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, mac: u64) -> Option<NicRow> {
        let row = self.rows.remove(&mac)?;
        for cn in &row.cn_uuids {
            forget(&mut self.by_cn, &cn.to_lowercase(), mac);
        }
        forget(&mut self.by_vm, &row.belongs_to_uuid, mac);
        Some(row)
    }

    /// The addresses of what belongs to this VM, server or user.
    pub(super) fn belonging_to(&self, uuid: &str) -> Vec<u64> {
        self.by_vm.get(uuid).into_iter().flatten().copied().collect()
    }

    /// The rows that can match these values of an indexed field, in the order of their addresses;
    /// all rows where neither is asked for.
    pub(super) fn candidates(
        &self,
        cns: Option<&[String]>,
        vms: Option<&[String]>,
    ) -> Box<dyn Iterator<Item = &NicRow> + '_> {
        let of = |index: &Index, wanted: &[String]| -> BTreeSet<u64> {
            wanted.iter().filter_map(|uuid| index.get(uuid)).flatten().copied().collect()
        };
        let found = match (cns, vms) {
            (_, Some(vms)) => of(&self.by_vm, vms),
            (Some(cns), None) => of(&self.by_cn, cns),
            (None, None) => return Box::new(self.rows.values()),
        };
        Box::new(found.into_iter().filter_map(|mac| self.rows.get(&mac)))
    }
}

fn forget(index: &mut Index, key: &str, mac: u64) {
    if let Some(macs) = index.get_mut(key) {
        macs.remove(&mac);
        if macs.is_empty() {
            index.remove(key);
        }
    }
}
