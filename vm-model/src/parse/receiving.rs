// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/etc/zones/UUID-receiving.json`: the create payload of a VM that is being received.

use serde_json::Value;

use crate::js;
use crate::origin::{Origin, ParseError};

/// The part of a payload that the VM object needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receiving {
    /// The dataset that will be the zone's root.
    pub zfs_filesystem: Option<Box<Value>>,
}

/// Parses a payload. A value that is neither an object nor null has no members.
pub fn parse(bytes: &[u8]) -> Result<Receiving, ParseError> {
    let value = js::parse(bytes).map_err(|e| ParseError::json(Origin::Receiving, e))?;
    if value.is_null() {
        return Err(ParseError::content(Origin::Receiving, "expected a JSON object, found null"));
    }
    Ok(Receiving { zfs_filesystem: value.get("zfs_filesystem").cloned().map(Box::new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_one_member() {
        let found = parse(br#"{"zfs_filesystem":"a/b"}"#).unwrap();
        assert_eq!(found.zfs_filesystem, Some(Box::new("a/b".into())));
        assert_eq!(parse(b"[]").unwrap(), Receiving::default());
        assert!(parse(b"null").is_err() && parse(b"x").is_err());
    }
}
