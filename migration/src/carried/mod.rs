// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How each key of a VM's object comes to the target: one table, which the payload of the target, what is brought
//! over before the switch, and the checks at begin are made from.

mod rows;

use serde_json::{Map, Value, json};

pub use rows::{DISKS, FILESYSTEMS, NICS, PCI_DEVICES, TOP};

/// What every update of a bhyve VM has to name: one that names neither sets both to their defaults.
pub const CONSOLES: [&str; 2] = ["com1", "com2"];

/// A set of brands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brands(u8);

const NATIVE: u8 = 1; // joyent, builder
const MINIMAL: u8 = 2; // joyent-minimal
const LX: u8 = 4;
const KVM: u8 = 8;
const BHYVE: u8 = 16;

impl Brands {
    /// Those that share the node's kernel.
    pub const OS: Brands = Brands(NATIVE | MINIMAL | LX);
    /// lx.
    pub const LX: Brands = Brands(LX);
    /// Those of docker's VMs.
    pub const DOCKER: Brands = Brands(MINIMAL | LX);
    /// kvm.
    pub const KVM: Brands = Brands(KVM);
    /// bhyve.
    pub const BHYVE: Brands = Brands(BHYVE);
    /// Those that run their own kernel.
    pub const HVM: Brands = Brands(KVM | BHYVE);
    /// All but bhyve.
    pub const NOT_BHYVE: Brands = Brands(NATIVE | MINIMAL | LX | KVM);
    /// All that vmadm creates.
    pub const ALL: Brands = Brands(NATIVE | MINIMAL | LX | KVM | BHYVE);

    /// Returns true if the brand is one of them.
    pub fn has(self, brand: &str) -> bool {
        let bit = match brand {
            "joyent" | "builder" => NATIVE,
            "joyent-minimal" => MINIMAL,
            "lx" => LX,
            "kvm" => KVM,
            "bhyve" => BHYVE,
            _ => 0,
        };
        self.0 & bit != 0
    }
}

/// How a key comes to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// In the payload of the creation; what changes later is brought over by `vmadm update`.
    Given(Unset),
    /// In the payload of the creation; nothing changes it later.
    Once,
    /// An object whose members are in the payload, in the streams, and brought over one by one.
    Members,
    /// In the streams alone.
    Streamed,
    /// In the payload, made by a rule of its own.
    Derived,
    /// Set on the target after its creation.
    Later,
    /// A VM that has it is refused at begin.
    Refused,
    /// Nothing carries it: begin warns.
    Warned,
    /// The node makes it.
    Made,
}

/// What `vmadm update` is told where the source lacks a key that the target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
    /// null
    Null,
    /// The empty text: null is refused.
    Empty,
    /// false: null is refused.
    False,
    /// true, which is stored as absence.
    True,
    /// Nothing: no update removes it, and what the target has by itself means the same.
    Stays,
}

/// What `vmadm` takes as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Bool,
    /// A whole number, not below this one. Objects may have a fraction: it is rounded up.
    Whole(i64),
    /// Any text.
    Text,
    /// A lower-case UUID.
    Uuid,
    /// A list of texts, or one text with commas.
    List,
    /// Something of its own.
    Other,
}

/// How one key comes to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: &'static str,
    /// Which brands take it.
    pub brands: Brands,
    /// Its values.
    pub kind: Kind,
    /// The way.
    pub how: How,
}

/// vmadm would refuse the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

impl Row {
    /// Returns the object's value in the form that `vmadm` takes; none where that is the same as its absence.
    ///
    /// # Errors
    /// For a value that `vmadm` would refuse.
    pub fn value(&self, object: &Map<String, Value>) -> Result<Option<Value>, Unfit> {
        let Some(value) = object.get(self.key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let value = match self.kind {
            Kind::Bool => json!(truth(value).ok_or(Unfit)?),
            Kind::Whole(least) => match whole(value).filter(|number| *number >= least) {
                Some(number) => json!(number),
                None if value == "" => return Ok(None),
                None => return Err(Unfit),
            },
            Kind::Text if value.is_string() => value.clone(),
            Kind::Uuid if value.as_str().is_some_and(is_uuid) => value.clone(),
            Kind::List => list(value).ok_or(Unfit)?,
            Kind::Other => value.clone(),
            Kind::Text | Kind::Uuid => return Err(Unfit),
        };
        let is_absence = match self.how {
            How::Given(Unset::False) => value == json!(false),
            How::Given(Unset::True) => value == json!(true),
            _ => value == "" || value.as_array().is_some_and(Vec::is_empty),
        };
        Ok((!is_absence).then_some(value))
    }
}

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

/// The members of an object that `vmadm` takes: text, number, boolean. What else there is lies in the streams.
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

/// Returns true for a UUID in the form of `vmadm`.
pub fn is_uuid(text: &str) -> bool {
    uuid::Uuid::try_parse(text).is_ok_and(|uuid| uuid.to_string() == text)
}

/// The dataset of the zone's root.
pub fn root(object: &Map<String, Value>) -> Option<&str> {
    let path = || text(object, "zonepath").and_then(|path| path.strip_prefix('/'));
    text(object, "zfs_filesystem").or_else(path)
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A number, rounded up.
fn whole(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    if let Some(text) = value.as_str() {
        return text.parse().ok();
    }
    let number = value.as_f64().map(f64::ceil)?;
    // Every whole number below 2^53 is one of i64's.
    #[allow(clippy::cast_possible_truncation)]
    (number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}

fn list(value: &Value) -> Option<Value> {
    let Value::Array(items) = value else { return value.is_string().then(|| value.clone()) };
    let is_item = |item: &Value| match item {
        Value::String(text) => !text.contains(','),
        item => item.is_number(),
    };
    let kept: Vec<&Value> = items.iter().filter(|item| **item != "").collect();
    kept.iter().all(|item| is_item(item)).then(|| json!(kept))
}

#[cfg(test)]
mod tests;
