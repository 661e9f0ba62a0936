// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The order of a listing. Pure.
//!
//! The shipped comparison contradicts itself for some pairs, and leaves ties to an algorithm that is not
//! stable: what it prints then depends on the number of VMs. Here the order is total, and ties sort by uuid.

use std::cmp::Ordering;

use serde_json::Value;

use super::fields::Column;
use super::value::{compare, text_form};
use super::vm::Vm;

/// A sort key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    column: Column,
    descending: bool,
}

impl SortKey {
    /// Parses `quota`, `+quota` or `-quota`; `None` if the field cannot be sorted by.
    pub fn read(text: &str) -> Option<SortKey> {
        let (name, descending) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (text.strip_prefix('+').unwrap_or(text), false),
        };
        Some(SortKey { column: Column::named(name)?, descending })
    }

    fn order(&self, a: &Vm, b: &Vm) -> Ordering {
        let (a, b) = (self.column.of(a), self.column.of(b));
        // Absent values come last. Numbers precede texts, since a text that is no number compares with none.
        let rank = |value: Option<&Value>| match value {
            Some(Value::Number(_)) => 0,
            None | Some(Value::Null) => 2,
            Some(_) => 1,
        };
        let order = rank(a).cmp(&rank(b)).then_with(|| compare(a, b).unwrap_or(Ordering::Equal));
        if self.descending { order.reverse() } else { order }
    }
}

/// Sorts VMs by the first key that differs, then by uuid. As in the shipped program, a key that is not among
/// the `properties` shown does not count.
pub fn sort(vms: &mut [Vm], keys: &[SortKey], properties: &[&str]) {
    let uuid = |vm: &Vm| vm.object.get("uuid").and_then(text_form);
    let keys = || keys.iter().filter(|key| properties.contains(&key.column.property()));
    vms.sort_by(|a, b| {
        let order = keys().map(|key| key.order(a, b)).find(|order| order.is_ne());
        order.unwrap_or_else(|| uuid(a).cmp(&uuid(b)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sorted(values: &Value, keys: &[&str]) -> Vec<Value> {
        let keys: Vec<SortKey> = keys.iter().map(|key| SortKey::read(key).unwrap()).collect();
        let objects = values.as_array().unwrap().iter().map(|vm| vm.as_object().unwrap().clone());
        let mut vms: Vec<Vm> = objects.map(Vm::new).collect();
        sort(&mut vms, &keys, &["uuid", "alias", "quota", "cpu_cap"]);
        vms.into_iter().map(|vm| vm.object["uuid"].clone()).collect()
    }

    #[test]
    fn absent_values_are_last_ascending_and_first_descending() {
        let vms = json!([
            {"uuid": "none"}, {"uuid": "b", "alias": "b"}, {"uuid": "B", "alias": "B"},
            {"uuid": "a", "alias": "a"},
        ]);
        assert_eq!(sorted(&vms, &["alias"]), ["B", "a", "b", "none"]);
        assert_eq!(sorted(&vms, &["-alias"]), ["none", "b", "a", "B"]);
        assert_eq!(sorted(&vms, &["+alias"]), ["B", "a", "b", "none"]);
    }

    #[test]
    fn keys_decide_one_after_the_other_and_uuids_decide_ties() {
        let vms = json!([
            {"uuid": "1", "quota": 5, "alias": "x", "ram": 2}, {"uuid": "2", "quota": 5, "alias": "a"},
            {"uuid": "3", "quota": 9, "alias": "m", "ram": 1},
        ]);
        assert_eq!(sorted(&vms, &["-quota", "alias"]), ["3", "2", "1"]);
        assert_eq!(sorted(&vms, &["-quota"]), ["3", "1", "2"]);
        assert_eq!(sorted(&vms, &["cpu_cap"]), ["1", "2", "3"], "absent in all");
        assert_eq!(sorted(&vms, &["-max_swap"]), ["1", "2", "3"], "not shown");
    }

    #[test]
    fn zero_is_a_number_wherever_it_stood() {
        let (zero, five) = (json!({"uuid": "0", "quota": 0}), json!({"uuid": "5", "quota": 5}));
        assert_eq!(sorted(&json!([zero, five]), &["quota"]), ["0", "5"]);
        assert_eq!(sorted(&json!([five, zero]), &["quota"]), ["0", "5"]);
        let odd = json!([{"uuid": "t", "quota": "x"}, {"uuid": "7", "quota": 7}, five]);
        assert_eq!(sorted(&odd, &["quota"]), ["5", "7", "t"]);
    }

    #[test]
    fn what_cannot_be_sorted_by() {
        for key in ["", "-", "bogus", "--quota", "nics.*.ip"] {
            assert_eq!(SortKey::read(key), None, "{key}");
        }
    }
}
