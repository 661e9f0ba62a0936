// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The order of a listing. The shipped comparison is inconsistent for some pairs and leaves ties to
//! the sorting algorithm, so both are reproduced here. Pure.

use std::cmp::Ordering::{Greater, Less};

use super::fields::Column;
use super::value::{compare, truthy};
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

    /// Positive: `a` comes after `b`; negative: before. Not antisymmetric.
    fn order(&self, a: &Vm, b: &Vm) -> i32 {
        let (a, b) = (self.column.of(a), self.column.of(b));
        let direction = if self.descending { -1 } else { 1 };
        let order = compare(a, b);
        let counts = truthy(a).cmp(&truthy(b));
        let exists = a.is_some().cmp(&b.is_some());
        // What does not count or exist comes last.
        match () {
            () if order == Some(Greater) || counts == Less || exists == Less => direction,
            () if order == Some(Less) || counts == Greater || exists == Greater => -direction,
            () => 0,
        }
    }
}

/// Sorts VMs by the first key that differs.
pub fn sort(vms: Vec<Vm>, keys: &[SortKey]) -> Vec<Vm> {
    let order = |a: usize, b: usize| {
        let (Some(a), Some(b)) = (vms.get(a), vms.get(b)) else { return 0 };
        keys.iter().map(|key| key.order(a, b)).find(|order| *order != 0).unwrap_or(0)
    };
    let mut places: Vec<usize> = (0..vms.len()).collect();
    engine_sort(&mut places, order);
    let mut vms: Vec<Option<Vm>> = vms.into_iter().map(Some).collect();
    places.into_iter().filter_map(|place| vms.get_mut(place)?.take()).collect()
}

/// Longest range that is sorted by insertion.
const SHORT: usize = 10;

/// The algorithm of the platform's engine: quicksort with the median of first, last and middle
/// element, insertion sort for short ranges. Not stable; works with any comparison.
fn engine_sort<T: Copy>(items: &mut [T], order: impl Fn(T, T) -> i32) {
    let mut ranges = vec![(0, items.len())];
    while let Some((from, to)) = ranges.pop() {
        let Some(range) = items.get_mut(from..to) else { continue };
        if range.len() <= SHORT {
            insertion(range, &order);
        } else {
            let (low, high) = partition(range, &order);
            ranges.push((from, from + low));
            ranges.push((from + high, to));
        }
    }
}

#[allow(clippy::indexing_slicing)] // both indexes are below the length
fn insertion<T: Copy>(items: &mut [T], order: &impl Fn(T, T) -> i32) {
    for start in 1..items.len() {
        let mut at = start;
        while at > 0 && order(items[at - 1], items[at]) > 0 {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Partitions a range of more than [`SHORT`] elements: less than the pivot before the first index,
/// greater from the second index on, equal in between.
#[allow(clippy::indexing_slicing)] // every index stays within the range
fn partition<T: Copy>(items: &mut [T], order: &impl Fn(T, T) -> i32) -> (usize, usize) {
    let (last, middle) = (items.len() - 1, items.len() / 2);
    let (mut a, mut b, m) = (items[0], items[last], items[middle]);
    if order(a, b) > 0 {
        (a, b) = (b, a);
    }
    let (lowest, pivot, highest) = if order(a, m) >= 0 {
        (m, a, b)
    } else if order(b, m) > 0 {
        (a, m, b)
    } else {
        (a, b, m)
    };
    (items[0], items[last]) = (lowest, highest);
    // The pivot moves to the second place.
    items[middle] = items[1];
    items[1] = pivot;
    let (mut low, mut high) = (1, last);
    let mut at = 2;
    while at < high {
        let side = order(items[at], pivot);
        if side < 0 {
            items.swap(at, low);
            low += 1;
        } else if side > 0 {
            let other = loop {
                high -= 1;
                if high == at {
                    return (low, high);
                }
                let other = order(items[high], pivot);
                if other <= 0 {
                    break other;
                }
            };
            items.swap(at, high);
            if other < 0 {
                items.swap(at, low);
                low += 1;
            }
        }
        at += 1;
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vms(values: &Value) -> Vec<Vm> {
        let objects = values.as_array().unwrap().iter().map(|vm| vm.as_object().unwrap().clone());
        objects.map(Vm::new).collect()
    }

    fn sorted(values: &Value, keys: &[&str]) -> Vec<Value> {
        let keys: Vec<SortKey> = keys.iter().map(|key| SortKey::read(key).unwrap()).collect();
        sort(vms(values), &keys).into_iter().map(|vm| vm.object["uuid"].clone()).collect()
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
        // Nobody has it: the order stays (while it is sorted by insertion).
        assert_eq!(sorted(&vms, &["cpu_cap"]), ["none", "b", "B", "a"]);
    }

    #[test]
    fn keys_decide_one_after_the_other() {
        let vms = json!([
            {"uuid": "1", "quota": 5, "alias": "x"}, {"uuid": "2", "quota": 5, "alias": "a"},
            {"uuid": "3", "quota": 9, "alias": "m"},
        ]);
        assert_eq!(sorted(&vms, &["-quota", "alias"]), ["3", "2", "1"]);
    }

    #[test]
    fn a_pair_that_contradicts_itself() {
        // Zero is less than five and yet comes after it, as it counts as nothing.
        let (zero, five) = (json!({"uuid": "0", "quota": 0}), json!({"uuid": "5", "quota": 5}));
        assert_eq!(sorted(&json!([zero, five]), &["quota"]), ["5", "0"]);
        assert_eq!(sorted(&json!([five, zero]), &["quota"]), ["0", "5"]);
    }

    #[test]
    fn long_ranges_are_sorted_too() {
        let mut items: Vec<u32> =
            (0..2000).map(|n: u32| n.wrapping_mul(2_654_435_761) % 997).collect();
        let mut expected = items.clone();
        expected.sort_unstable();
        engine_sort(&mut items, |a, b| a.cmp(&b) as i32);
        assert_eq!(items, expected);
        // Eleven equal elements change places: the algorithm is not stable.
        let mut ties: Vec<usize> = (0..11).collect();
        engine_sort(&mut ties, |_, _| 0);
        assert_eq!(ties, [5, 0, 2, 3, 4, 1, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn what_cannot_be_sorted_by() {
        for key in ["", "-", "bogus", "--quota", "nics.*.ip"] {
            assert_eq!(SortKey::read(key), None, "{key}");
        }
    }
}
