// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All VMs of a snapshot by name, in the order in which they were created.
//!
//! A snapshot shares all but one small block with the one before it, so that the cost of a change does
//! not grow with the number of VMs. A create or delete is rare and costs more.

use std::collections::HashMap;
use std::sync::Arc;

use super::stored::StoredVm;

/// VMs of one block; all blocks but the last are full.
const BLOCK: usize = 64;

type Entry = (Arc<str>, Arc<StoredVm>);

/// The VMs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Vms {
    blocks: Vec<Arc<Vec<Entry>>>,
    places: Arc<HashMap<Arc<str>, usize>>,
}

impl Vms {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The VM of this zone name.
    pub fn get(&self, name: &str) -> Option<&Arc<StoredVm>> {
        self.get_index(*self.places.get(name)?).map(|(_, vm)| vm)
    }

    /// Whether there is one of this zone name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The VM at this place of the order.
    pub fn get_index(&self, at: usize) -> Option<(&Arc<str>, &Arc<StoredVm>)> {
        self.blocks.get(at / BLOCK)?.get(at % BLOCK).map(|(name, vm)| (name, vm))
    }

    /// All of them in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<StoredVm>)> {
        self.blocks.iter().flat_map(|block| block.iter()).map(|(name, vm)| (name, vm))
    }

    /// Their zone names in their order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(name, _)| name)
    }

    /// The VMs alone in their order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<StoredVm>> {
        self.iter().map(|(_, vm)| vm)
    }

    /// Puts a VM in the place of the one of its name, or last.
    pub fn insert(&mut self, name: &str, vm: Arc<StoredVm>) {
        match self.places.get(name).copied() {
            Some(at) => {
                let block = self.blocks.get_mut(at / BLOCK).map(Arc::make_mut);
                if let Some(entry) = block.and_then(|block| block.get_mut(at % BLOCK)) {
                    entry.1 = vm;
                }
            }
            None => self.push(Arc::from(name), vm),
        }
    }

    /// Takes a VM out; the order of the others stays.
    pub fn remove(&mut self, name: &str) {
        if self.contains_key(name) {
            let others = self.iter().filter(|(other, _)| &***other != name);
            *self = others.map(|(name, vm)| (Arc::clone(name), Arc::clone(vm))).collect();
        }
    }

    fn push(&mut self, name: Arc<str>, vm: Arc<StoredVm>) {
        let at = self.len();
        Arc::make_mut(&mut self.places).insert(Arc::clone(&name), at);
        match self.blocks.last_mut().filter(|_| !at.is_multiple_of(BLOCK)) {
            Some(last) => Arc::make_mut(last).push((name, vm)),
            None => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push((name, vm));
                self.blocks.push(Arc::new(block));
            }
        }
    }
}

impl FromIterator<(Arc<str>, Arc<StoredVm>)> for Vms {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, Arc<StoredVm>)>>(entries: T) -> Self {
        let mut vms = Vms::default();
        for (name, vm) in entries {
            if vms.contains_key(&name) {
                vms.insert(&name, vm);
            } else {
                vms.push(name, vm);
            }
        }
        vms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vm(n: usize) -> Arc<StoredVm> {
        let mut object = sdc_clients::vminfod::VmObject::new();
        object.insert("n".into(), n.into());
        super::super::stored::stored(&object.into())
    }

    fn shown(vms: &Vms) -> Vec<(String, String)> {
        let text = |vm: &StoredVm| String::from_utf8_lossy(&vm.json()).into_owned();
        vms.iter().map(|(name, vm)| (name.to_string(), text(vm))).collect()
    }

    #[test]
    fn change_shares_the_other_blocks() {
        let before: Vms = (0..200).map(|n| (Arc::from(format!("z{n}")), vm(n))).collect();
        let mut after = before.clone();
        after.insert("z70", vm(999));
        assert_eq!(&*after.get("z70").unwrap().json(), b"{\"n\":999}");
        assert_eq!(&*before.get("z70").unwrap().json(), b"{\"n\":70}", "the older one is its own");
        let shared =
            before.blocks.iter().zip(&after.blocks).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!((shared, before.blocks.len()), (3, 4));
        assert!(Arc::ptr_eq(&before.places, &after.places));
    }

    proptest! {
        #[test]
        fn behaves_like_an_ordered_map(steps in proptest::collection::vec((0..150usize, 0..4usize), 0..400)) {
            let (mut vms, mut plain) = (Vms::default(), indexmap::IndexMap::new());
            for (n, (name, step)) in steps.into_iter().enumerate() {
                let name = format!("z{name}");
                if step == 0 {
                    vms.remove(&name);
                    plain.shift_remove(&name);
                } else {
                    vms.insert(&name, vm(n));
                    plain.insert(name, format!("{{\"n\":{n}}}"));
                }
            }
            prop_assert_eq!(shown(&vms), plain.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(vms.len(), plain.len());
            for (at, (name, text)) in plain.iter().enumerate() {
                prop_assert_eq!(&*vms.get(name).unwrap().json(), text.as_bytes());
                prop_assert_eq!(&**vms.get_index(at).unwrap().0, name.as_str());
            }
            prop_assert!(vms.get("other").is_none() && vms.get_index(plain.len()).is_none());
        }
    }
}
