// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/tmp/.sysinfo.json`: the facts of the node.

use serde_json::{Map, Value};

use crate::js;
use crate::origin::{Origin, ParseError};

/// The output of sysinfo(8).
#[derive(Debug, Clone, PartialEq)]
pub struct Sysinfo {
    value: Value,
}

impl Sysinfo {
    /// Returns all of it.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns one member of any type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key)
    }
}

impl Default for Sysinfo {
    fn default() -> Self {
        Sysinfo { value: Value::Object(Map::new()) }
    }
}

/// Parses an object. As deployed, null is an object without members.
pub fn parse(bytes: &[u8]) -> Result<Sysinfo, ParseError> {
    let value = js::parse(bytes).map_err(|e| ParseError::json(Origin::Sysinfo, e))?;
    match value {
        Value::Object(_) | Value::Null => Ok(Sysinfo { value }),
        _ => Err(ParseError::content(Origin::Sysinfo, "expected a JSON object")),
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
