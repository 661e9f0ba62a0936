// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who the node is.

use std::collections::BTreeSet;

use sdc_clients::MacAddr;
use serde_json::Value;

/// Sysinfo without a uuid.
#[derive(Debug, thiserror::Error)]
#[error("sysinfo has no UUID")]
pub struct NoUuid;

/// The node's uuid and its own NICs, from sysinfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uuid: String,
    /// Its own MACs, physical and virtual.
    pub macs: BTreeSet<MacAddr>,
}

impl Identity {
    /// Reads sysinfo: `{"sysinfo": {…}, "age_ms": n}` or the bare object.
    ///
    /// # Errors
    /// If there is no uuid.
    pub fn read(answer: &Value) -> Result<Self, NoUuid> {
        let sysinfo = answer.get("sysinfo").unwrap_or(answer);
        let uuid = sysinfo.get("UUID").and_then(Value::as_str).ok_or(NoUuid)?.to_lowercase();
        let mut found = Self { uuid, ..Self::default() };
        for section in ["Network Interfaces", "Virtual Network Interfaces"] {
            let Some(links) = sysinfo.get(section).and_then(Value::as_object) else { continue };
            for link in links.values() {
                let mac = link.get("MAC Address").and_then(Value::as_str).map(str::parse);
                let Some(Ok(mac)) = mac else { continue };
                found.macs.insert(mac);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_both_shapes_of_sysinfo() {
        let bare = json!({"UUID": "A829C448-085b-4138-adbc-583ac96881c3",
            "Network Interfaces": {"ixgbe0": {"MAC Address": "0c:c4:7a:1:2:3", "Link Status": "up"}}});
        let wrapped = json!({"sysinfo": bare, "age_ms": 3});
        let identity = Identity::read(&bare).unwrap();
        assert_eq!(identity, Identity::read(&wrapped).unwrap());
        assert_eq!(identity.uuid, "a829c448-085b-4138-adbc-583ac96881c3");
        assert_eq!(identity.macs.len(), 1);
        assert!(Identity::read(&json!({})).is_err());
    }
}
