// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The bytes of a configuration file, and its keys that the program does not know.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

/// Largest configuration file that is read, in bytes.
const FILE_CAP: u64 = 1 << 20;

pub(super) fn collect_unknown(
    map: &Map<String, Value>,
    prefix: &str,
    known: &BTreeSet<String>,
    unknown: &mut Vec<String>,
) {
    for (name, value) in map {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if known.contains(&key) {
            continue;
        }
        let inner = format!("{key}.");
        match value {
            Value::Object(child) if known.iter().any(|k| k.starts_with(&inner)) => {
                collect_unknown(child, &key, known, unknown);
            }
            _ => unknown.push(key),
        }
    }
}

pub(super) fn read_capped(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_CAP + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_CAP {
        return Err(io::Error::other(format!("larger than {FILE_CAP} bytes")));
    }
    Ok(text)
}
