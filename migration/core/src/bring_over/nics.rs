// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NICs, by their MACs. `update_nics` takes what changes, and refuses an address that it repeats beside its tag; but
//! for flags it takes nothing away. So a NIC that has to lose a field, or to change its network, is removed, and added
//! by a second update.

use serde_json::{Map, Value, json};

use crate::carried::{self, How, Row, Unset, entries};

/// The changes of the NICs.
#[derive(Debug, Default)]
pub struct Changes {
    /// Removed and updated ones, and those that are added where this update does nothing else to NICs.
    pub first: Map<String, Value>,
    pub then: Map<String, Value>,
}

type Nic = Map<String, Value>;

/// Returns what makes the target's NICs the source's.
pub fn changes(source: &Map<String, Value>, target: &Map<String, Value>, brand: &str) -> Changes {
    let of = |object: &Map<String, Value>| -> Vec<Nic> {
        entries(object, "nics").into_iter().map(|nic| values(nic, brand)).collect()
    };
    let (source, target) = (of(source), of(target));
    let find = |nics: &[Nic], nic: &Nic| {
        nics.iter().find(|other| other.get("mac") == nic.get("mac")).cloned()
    };
    let is_taken = source.iter().any(|nic| nic.get("primary") == Some(&json!(true)));
    let gone = target.iter().filter(|nic| find(&source, nic).is_none());
    let mut removed: Vec<Value> = gone.filter_map(|nic| nic.get("mac").cloned()).collect();
    let (mut added, mut updated) = (Vec::new(), Vec::new());
    for nic in &source {
        let Some(there) = find(&target, nic) else {
            added.push(nic.clone());
            continue;
        };
        match changed(nic, &there, brand, is_taken) {
            None => {
                removed.extend(nic.get("mac").cloned());
                added.push(nic.clone());
            }
            Some(change) if change.is_empty() => {}
            Some(mut change) => {
                change.extend(nic.get("mac").cloned().map(|mac| ("mac".to_owned(), mac)));
                updated.push(change);
            }
        }
    }
    let mut changes = Changes::default();
    if !removed.is_empty() {
        changes.first.insert("remove_nics".into(), json!(removed));
    }
    if !updated.is_empty() {
        changes.first.insert("update_nics".into(), json!(updated));
    }
    if !added.is_empty() {
        // An address that one NIC gives up and another gets is free in the second update only.
        let place = if changes.first.is_empty() { &mut changes.first } else { &mut changes.then };
        place.insert("add_nics".into(), json!(added));
    }
    changes
}

/// Returns the first key that no NIC is given.
pub fn foreign(nics: &Value) -> Option<String> {
    let is_known = |key: &str| given().any(|row| row.key == key);
    let keys = nics.as_array()?.iter().filter_map(Value::as_object).flat_map(|nic| nic.keys());
    keys.filter(|key| !is_known(key)).map(|key| format!("nics.*.{key}")).next()
}

fn given() -> impl Iterator<Item = &'static Row> {
    carried::NICS.iter().filter(|row| matches!(row.how, How::Given(_) | How::Once))
}

fn rows(brand: &str) -> impl Iterator<Item = &'static Row> {
    given().filter(move |row| row.brands.has(brand))
}

fn values(nic: &Nic, brand: &str) -> Nic {
    let value = |row: &Row| Some((row.key.to_owned(), row.value(nic).ok().flatten()?));
    rows(brand).filter_map(value).collect()
}

/// Returns the fields that change; none where no update of the NIC makes it what it has to be. Where another NIC
/// becomes the primary one (`is_taken`), it takes that from this.
fn changed(nic: &Nic, there: &Nic, brand: &str, is_taken: bool) -> Option<Nic> {
    let mut change = Nic::new();
    for row in rows(brand) {
        let (want, has) = (nic.get(row.key), there.get(row.key));
        if want == has {
            continue;
        }
        match (want, row.how) {
            (_, How::Once) => return None, // another network
            (None, _) if row.key == "primary" && is_taken => {}
            (None, _) if row.key == "primary" => return None, // false is refused
            (Some(want), _) => drop(change.insert(row.key.into(), want.clone())),
            (None, How::Given(Unset::False)) => drop(change.insert(row.key.into(), json!(false))),
            (None, _) => return None,
        }
    }
    Some(change)
}
