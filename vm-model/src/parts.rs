// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All that one VM object is composed of.

use std::ops::Range;
use std::sync::Arc;

use crate::datasets::{Datasets, VmDatasets};
use crate::parse::config_json::ConfigJson;
use crate::parse::kstat::ZoneKstat;
use crate::parse::lastexited::LastExited;
use crate::parse::receiving::Receiving;
use crate::parse::sysinfo::Sysinfo;
use crate::parse::zone_xml::ZoneXml;
use crate::parse::zoneadm::ZoneRow;

/// All that one VM object is composed of. Equal parts give equal objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    pub zone: Arc<ZoneRow>,
    /// The zone's configuration.
    pub xml: Arc<ZoneXml>,
    /// The kstat, if the zone has one.
    pub kstat: Option<ZoneKstat>,
    /// Metadata, tags, routes.
    pub config: Arc<ConfigJson>,
    /// How the zone's init last ended.
    pub lastexited: Option<LastExited>,
    /// The versions of its files.
    pub stamps: Stamps,
    /// The create payload; only of a VM in state receiving.
    pub receiving: Option<Receiving>,
    /// The VM's datasets and their snapshots.
    pub datasets: VmDatasets,
    /// The node's sysinfo.
    pub sysinfo: Arc<Sysinfo>,
}

impl Parts {
    /// Returns the state of the VM.
    pub fn state(&self) -> String {
        state_of(&self.zone, &self.xml)
    }

    /// Returns true if the VM is being received: then it has a receiving file.
    pub fn is_receiving(&self) -> bool {
        self.state() == "receiving"
    }

    /// Returns the names of all datasets that [`crate::compose`] looks up for this VM, also of those
    /// that do not exist. `all` are the datasets of the node, by whose mountpoints it finds them.
    pub fn dataset_names(&self, all: &Datasets) -> Vec<String> {
        let zonepath = &*self.zone.zonepath;
        let named = zonepath.strip_prefix('/').unwrap_or(zonepath);
        let mut roots = vec![all.at(zonepath).map_or(named, |row| row.name()).to_owned()];
        let receiving = self.receiving.as_ref().and_then(|it| it.zfs_filesystem.as_deref());
        roots.extend(receiving.and_then(|name| name.as_str()).map(str::to_owned));
        let mut names = Vec::new();
        for root in roots {
            names.push(format!("{root}/data"));
            names.push(root);
        }
        for path in self.xml.each("device", "match") {
            // The path of a volume that does not exist has its name in it.
            let volume =
                path.strip_prefix(crate::datasets::DEVICES).filter(|name| !name.is_empty());
            names.extend(all.at(path).map(|row| row.name()).or(volume).map(str::to_owned));
        }
        names.extend(self.xml.each("dataset", "name").map(str::to_owned));
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Returns the state of a VM: zoneadm's, unless vmadm wrote another into the configuration.
pub fn state_of(row: &ZoneRow, xml: &ZoneXml) -> String {
    let [transition, provisioning, failed] = xml.attrs(["transition", "provisioning", "failed"]);
    let transition = transition.and_then(split_transition).map(|[state, ..]| state);
    shown_state(transition, provisioning == Some("true"), failed, &row.zone_state).to_owned()
}

/// Returns the state of a VM with these words in its configuration.
pub(crate) fn shown_state<'a>(
    transition: Option<&'a str>,
    is_provisioning: bool,
    failed: Option<&str>,
    zone_state: &'a str,
) -> &'a str {
    let state = match (transition, zone_state) {
        (Some(state), _) => state,
        (None, "installed") => "stopped",
        (None, state) => state,
    };
    if failed.is_some_and(|text| !text.is_empty()) {
        "failed"
    } else if state == "stopped" && is_provisioning {
        "provisioning"
    } else {
        state
    }
}

/// Returns the three parts of a transition, `STATE:TO:EXPIRES`; `None` for any other text.
pub(crate) fn split_transition(text: &str) -> Option<[&str; 3]> {
    let words: Vec<&str> = text.trim_end_matches(crate::js::is_space).split(':').collect();
    <[&str; 3]>::try_from(words).ok()
}

/// The number of files with a stamp.
pub const FILES: usize = 5;
/// The index of the XML.
pub const XML: usize = 0;
/// The index of lastexited.
pub const LAST_EXITED: usize = 1;
/// The index of metadata.json.
pub const METADATA: usize = 2;
/// The index of tags.json.
pub const TAGS: usize = 3;
/// The index of routes.json.
pub const ROUTES: usize = 4;
/// The indexes of the three files in `config/`.
pub const CONFIG: Range<usize> = METADATA..FILES;

/// The versions of a zone's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamps {
    /// A digest of device, inode, size, modification time and change time of each file; 0 if absent.
    pub versions: [u64; FILES],
    /// One bit per file that was modified so recently that it can change without a new stamp.
    pub young: u8,
    /// The newest modification time in whole seconds since 1970. Times of 0 and files that are not
    /// regular do not count.
    pub last_modified: Option<i64>,
}

impl Stamps {
    /// Returns true if this file exists.
    pub fn has(&self, file: usize) -> bool {
        self.versions.get(file).is_some_and(|version| *version != 0)
    }

    /// Returns true if `other` has another version of this file.
    pub fn differs(&self, other: &Stamps, file: usize) -> bool {
        self.versions.get(file) != other.versions.get(file)
    }

    /// Returns true if `later` shows that no file has to be read again.
    pub fn confirmed_by(&self, later: &Stamps) -> bool {
        self.young == 0 && self.versions == later.versions
    }

    /// Replaces the stamps of files that were not read again by the older ones.
    pub fn keep(&mut self, older: &Stamps, files: Range<usize>) {
        for file in files {
            if let (Some(mine), Some(theirs)) =
                (self.versions.get_mut(file), older.versions.get(file))
            {
                *mine = *theirs;
                let bit = 1 << file;
                self.young = self.young & !bit | older.young & bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        // transition, provisioning, failed, zone_state → state
        let table = [
            (None, true, None, "installed", "provisioning"),
            (None, true, None, "configured", "configured"),
            (Some("provisioning"), true, None, "running", "provisioning"),
            (Some("stopping"), false, None, "shutting_down", "stopping"),
            (Some("receiving"), false, None, "incomplete", "receiving"),
            (Some("stopped"), true, None, "running", "provisioning"),
            (None, false, Some("provisioning"), "running", "failed"),
            (Some("receiving"), false, Some("false"), "running", "failed"),
            (None, false, Some(""), "installed", "stopped"),
            (None, false, None, "down", "down"),
        ];
        for (transition, provisioning, failed, zone_state, state) in table {
            let shown = shown_state(transition, provisioning, failed, zone_state);
            assert_eq!(shown, state, "{zone_state}");
        }
    }

    #[test]
    fn a_transition_has_three_parts() {
        assert_eq!(split_transition("stopping:start:15 \n"), Some(["stopping", "start", "15"]));
        for text in ["", "a", "a:b", "a:b:1:2"] {
            assert_eq!(split_transition(text), None);
        }
    }
}
