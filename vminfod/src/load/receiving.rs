// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! /etc/zones/UUID-receiving.json: the create payload of a VM that is being received.

use serde_json::Value;

use super::{Fault, LoadError, Origin, ZoneRow, read_if_there};
use crate::json;
use crate::root::Root;

const CAP: u64 = 4 * 1024 * 1024;

/// What is used of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Receiving {
    /// The dataset that will be the zone's root.
    pub zfs_filesystem: Option<Box<Value>>,
}

/// Reads the file; `None` if it is not there or cannot be read; where it may block.
pub(super) fn read(root: &Root, row: &ZoneRow) -> Result<Option<Receiving>, LoadError> {
    let path = root.receiving(&row.uuid);
    match read_if_there(root, Origin::Receiving, &path, CAP) {
        Ok(Some(bytes)) => parse(&bytes).map(Some).map_err(|e| e.in_file(path)),
        Ok(None) | Err(_) => Ok(None),
    }
}

/// A payload; what is neither object nor null has nothing to give.
pub fn parse(bytes: &[u8]) -> Result<Receiving, LoadError> {
    let value =
        json::parse(bytes).map_err(|e| LoadError::new(Origin::Receiving, Fault::Json(e)))?;
    if value.is_null() {
        return Err(LoadError::content(Origin::Receiving, "expected a JSON object, found null"));
    }
    Ok(Receiving { zfs_filesystem: value.get("zfs_filesystem").cloned().map(Box::new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_one_member() {
        assert_eq!(
            parse(b"{\"zfs_filesystem\":\"a/b\"}").unwrap().zfs_filesystem,
            Some(Box::new("a/b".into()))
        );
        assert_eq!(parse(b"[]").unwrap(), Receiving::default());
        assert!(parse(b"null").is_err() && parse(b"x").is_err());
    }
}
