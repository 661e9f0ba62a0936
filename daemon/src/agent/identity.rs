// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who the node is: its uuid, its serial number and its own NICs, as vminfod's sysinfo says.

use std::collections::BTreeSet;

use sdc_clients::MacAddr;
use sdc_clients::vminfod::Vminfod;
use serde_json::{Map, Value};

/// Why sysinfo does not say who the node is.
#[derive(Debug, thiserror::Error)]
pub enum Unidentified {
    /// vminfod did not answer.
    #[error("cannot read vminfod's /sysinfo")]
    NoAnswer(#[from] sdc_clients::Error),
    #[error("sysinfo has no UUID")]
    NoUuid,
}

/// The node's uuid and its own NICs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uuid: String,
    /// The serial number of its board, where the board has one.
    pub serial: Option<String>,
    /// Its own MACs, physical and virtual.
    pub macs: BTreeSet<MacAddr>,
}

impl Identity {
    /// Reads a sysinfo.
    /// Fails if there is no uuid.
    pub fn of(sysinfo: &Map<String, Value>) -> Result<Self, Unidentified> {
        let text = |key: &str| sysinfo.get(key).and_then(Value::as_str).map(str::trim);
        let uuid = text("UUID").ok_or(Unidentified::NoUuid)?.to_lowercase();
        let serial = text("Serial Number").filter(|text| !text.is_empty()).map(str::to_owned);
        let links = ["Network Interfaces", "Virtual Network Interfaces"]
            .into_iter()
            .filter_map(|section| sysinfo.get(section)?.as_object())
            .flat_map(Map::values);
        let mac = |link: &Value| link.get("MAC Address")?.as_str()?.parse().ok();
        Ok(Self { uuid, serial, macs: links.filter_map(mac).collect() })
    }

    /// Returns true if both have a serial number, and not the same.
    pub fn has_other_serial(&self, other: &Self) -> bool {
        matches!((&self.serial, &other.serial), (Some(one), Some(two)) if one != two)
    }

    /// Returns true if this is another machine's: it has another serial number, or shares no MAC with this one.
    pub fn is_other_machine(&self, other: &Self) -> bool {
        let know_macs = !self.macs.is_empty() && !other.macs.is_empty();
        self.has_other_serial(other) || know_macs && self.macs.is_disjoint(&other.macs)
    }

    /// Reads vminfod's sysinfo: `{"sysinfo": {…}, "age_ms": n}` or the bare object.
    /// Fails if vminfod does not answer, or does not say who the node is.
    pub async fn read(vminfod: &Vminfod) -> Result<Self, Unidentified> {
        let answer = vminfod.sysinfo().await?;
        let sysinfo = answer.get("sysinfo").unwrap_or(&answer);
        Self::of(sysinfo.as_object().ok_or(Unidentified::NoUuid)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_uuid_serial_and_links() {
        let read = |sysinfo: Value| Identity::of(sysinfo.as_object().unwrap());
        let identity = read(json!({"UUID": "A829C448-085b-4138-adbc-583ac96881c3", "Serial Number": " S1 ",
            "Network Interfaces": {"ixgbe0": {"MAC Address": "0c:c4:7a:1:2:3", "Link Status": "up"}},
            "Virtual Network Interfaces": {"x0": {"MAC Address": "02:08:20:0a:0b:0c"}}}))
        .unwrap();
        assert_eq!(identity.uuid, "a829c448-085b-4138-adbc-583ac96881c3");
        assert_eq!((identity.serial.as_deref(), identity.macs.len()), (Some("S1"), 2));
        assert!(read(json!({})).is_err());
    }
}
