// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A row of the table: which brands take a key, its values, and its way to the target.

use sdc_clients::restify::is_uuid;
use serde_json::{Map, Value, json};

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
    pub const LX: Brands = Brands(LX);
    /// Those of docker's VMs.
    pub const DOCKER: Brands = Brands(MINIMAL | LX);
    pub const KVM: Brands = Brands(KVM);
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
    /// It is not copied: begin warns.
    Warned,
    /// The node makes it.
    Made,
}

/// What `vmadm update` gets for a key that the target has and the source lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
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
    pub key: &'static str,
    /// Which brands take it.
    pub brands: Brands,
    pub kind: Kind,
    pub how: How,
}

/// vmadm would refuse the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

impl Row {
    /// Returns the object's value in the form that `vmadm` takes; none where that is the same as its absence.
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
