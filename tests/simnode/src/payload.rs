// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VM payloads as vmadm takes them. No I/O.

use serde_json::{Map, Value};

use crate::error::NodeError;

/// A VM's payload.
pub type Payload = Map<String, Value>;

/// The brands that vmadm creates.
pub const BRANDS: [&str; 6] = ["joyent", "joyent-minimal", "builder", "lx", "kvm", "bhyve"];

/// A text value of the payload.
pub fn text<'a>(payload: &'a Payload, key: &str) -> Option<&'a str> {
    payload.get(key).and_then(Value::as_str)
}

/// Bytes as zfs takes them: `10737418240`, `10g`, `512M`.
pub fn bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match digits.char_indices().next_back()? {
        (at, 'k') => (digits.get(..at)?, 10),
        (at, 'm') => (digits.get(..at)?, 20),
        (at, 'g') => (digits.get(..at)?, 30),
        (at, 't') => (digits.get(..at)?, 40),
        _ => (digits, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Returns true if VMs of this brand run their own kernel.
pub fn is_hvm(brand: &str) -> bool {
    matches!(brand, "kvm" | "bhyve")
}

/// A list of objects in the payload.
pub fn list<'a>(payload: &'a Payload, key: &str) -> Result<Vec<&'a Payload>, NodeError> {
    let wrong = || NodeError::invalid(key, "expected an array of objects");
    match payload.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|i| i.as_object().ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// The dataset of disk `n`.
pub fn disk_dataset(brand: &str, uuid: &str, n: usize) -> String {
    match brand {
        "kvm" => format!("zones/{uuid}-disk{n}"),
        _ => format!("zones/{uuid}/disk{n}"),
    }
}
