// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! /tmp/.sysinfo.json: what the node is.

use serde_json::{Map, Value};

use super::{Ctx, Fault, LoadError, Origin, read_if_there};
use crate::json;

const CAP: u64 = 4 * 1024 * 1024;

/// What sysinfo(8) printed, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Sysinfo {
    value: Value,
}

impl Sysinfo {
    /// All of it.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// One member, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key)
    }
}

impl Default for Sysinfo {
    fn default() -> Self {
        Sysinfo { value: Value::Object(Map::new()) }
    }
}

/// Reads the file.
pub async fn load(ctx: &Ctx) -> Result<Sysinfo, LoadError> {
    ctx.on_files(Origin::Sysinfo, "/tmp/.sysinfo.json", |root| {
        let path = root.sysinfo();
        match read_if_there(root, Origin::Sysinfo, &path, CAP)? {
            Some(bytes) => parse(&bytes).map_err(|e| e.in_file(path)),
            None => Err(LoadError::new(Origin::Sysinfo, Fault::Absent).in_file(path)),
        }
    })
    .await
}

/// An object; null, as deployed, is one without members.
pub fn parse(bytes: &[u8]) -> Result<Sysinfo, LoadError> {
    let value = json::parse(bytes).map_err(|e| LoadError::new(Origin::Sysinfo, Fault::Json(e)))?;
    match value {
        Value::Object(_) | Value::Null => Ok(Sysinfo { value }),
        _ => Err(LoadError::content(Origin::Sysinfo, "expected a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_null() {
        assert_eq!(parse(b"{\"UUID\":5}").unwrap().get("UUID"), Some(&Value::from(5)));
        assert_eq!(parse(b"null").unwrap().get("UUID"), None);
        assert!(parse(b"[]").unwrap_err().to_string().starts_with("sysinfo: expected"));
        assert!(parse(b"").unwrap_err().to_string().starts_with("sysinfo: not JSON"));
    }
}
