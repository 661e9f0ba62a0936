// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How each key of a VM's object comes to the target: one table, which the payload of the target, what is brought
//! over before the switch, and the checks at begin are made from.

// Blank lines keep the modules in layer order.

mod rows;

mod row;

use serde_json::{Map, Value, json};

pub use row::{Brands, How, Kind, Row, Unfit, Unset};
pub use rows::{DISKS, FILESYSTEMS, NICS, PCI_DEVICES, TOP};

/// What every update of a bhyve VM has to name: one that names neither sets both to their defaults.
pub const CONSOLES: [&str; 2] = ["com1", "com2"];

/// Returns the row of a key of the object itself.
pub fn row(key: &str) -> Option<&'static Row> {
    TOP.iter().find(|row| row.key == key)
}

/// The memory limits as `vmadm` settles them: nothing above, and no swap below, max_physical_memory.
pub fn settle_memory(brand: &str, limits: &mut Map<String, Value>) {
    const ROOM: i64 = 256; // a guest with its own kernel needs it besides ram; and the least swap
    let number = |limits: &Map<String, Value>, key: &str| limits.get(key).and_then(Value::as_i64);
    let Some(given) = number(limits, "max_physical_memory") else { return };
    let ram = number(limits, "ram").filter(|_| Brands::HVM.has(brand));
    let most = ram.map_or(given, |ram| given.max(ram.saturating_add(ROOM)));
    limits.insert("max_physical_memory".into(), json!(most));
    for key in ["max_locked_memory", "tmpfs"] {
        if let Some(value) = number(limits, key) {
            limits.insert(key.into(), json!(value.min(most)));
        }
    }
    if let Some(swap) = number(limits, "max_swap") {
        limits.insert("max_swap".into(), json!(swap.max(most).max(ROOM)));
    }
}

/// The members of an object that `vmadm` takes: text, number, boolean. The streams have the rest.
pub fn members(object: &Map<String, Value>, key: &str) -> Map<String, Value> {
    let all = object.get(key).and_then(Value::as_object).into_iter().flatten();
    let is_flat = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    all.filter(|(_, value)| is_flat(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The rows of a list in an object; none where it has no such list.
pub fn entries<'a>(object: &'a Map<String, Value>, key: &str) -> Vec<&'a Map<String, Value>> {
    let all = object.get(key).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_object).collect()
}

/// A text of an object.
pub fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// The dataset of the zone's root.
pub fn root(object: &Map<String, Value>) -> Option<&str> {
    let path = || text(object, "zonepath").and_then(|path| path.strip_prefix('/'));
    text(object, "zfs_filesystem").or_else(path)
}

#[cfg(test)]
mod tests;
