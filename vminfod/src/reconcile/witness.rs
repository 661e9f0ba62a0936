// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each witness says of one zone, and which VMs were seen to go.
//!
//! For a zone that does not run, zoneadm prints what the zone index has: the two are one witness, its XML is the
//! other. zonecfg removes both, so a zone is gone when both are.

use std::fmt;
use std::sync::Arc;

use daemon::needs::find;
use indexmap::IndexMap;
use vm_model::datasets::Datasets;
use vm_model::parse::text::is_lower_uuid;

/// The most VMs that are remembered after they went; the oldest is forgotten first.
const MOST_DEPARTED: usize = 4096;

/// The witnesses of one zone. Where they disagree its last object stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Witnesses {
    /// zoneadm has its row.
    pub row: bool,
    /// The zone index has its line.
    pub index: bool,
    /// Its XML is there.
    pub xml: bool,
}

impl Witnesses {
    /// All agree that the zone is there.
    pub const ALL: Self = Self { row: true, index: true, xml: true };

    /// Returns true if none has the zone.
    pub fn are_silent(self) -> bool {
        !(self.row || self.index || self.xml)
    }

    /// Returns the source that lacks the zone.
    pub fn lacking(self) -> &'static str {
        match self {
            Self { row: true, .. } => "zone_xml",
            Self { index: true, .. } => "zoneadm",
            _ => "zone index",
        }
    }
}

impl fmt::Display for Witnesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self { row: true, .. } => "zoneadm lists this zone, but it has no XML",
            Self { index: true, xml: true, .. } => {
                "zoneadm knows no such zone, but the zone index lists it and its XML is there"
            }
            Self { index: true, .. } => {
                "zoneadm knows no such zone and it has no XML, but the zone index lists it"
            }
            _ => {
                "zoneadm and the zone index lack this zone, but its XML is there: it stays until the index has its line \
                 again, or the XML is removed"
            }
        })
    }
}

/// The VMs whose row and XML were seen to go, by uuid, with the dataset that was left of each.
#[derive(Debug, Default)]
pub struct Departed(IndexMap<Arc<str>, Option<String>>);

impl Departed {
    /// Notes that this VM was seen to go.
    pub fn note(&mut self, uuid: Arc<str>) {
        if self.0.len() >= MOST_DEPARTED {
            self.0.shift_remove_index(0);
        }
        self.0.insert(uuid, None);
    }

    /// Returns true if this VM was seen to go.
    pub fn has(&self, uuid: &str) -> bool {
        self.0.contains_key(uuid)
    }

    /// The VM is here again. Returns the dataset that had counted as left.
    pub fn forget(&mut self, uuid: &str) -> Option<String> {
        self.0.shift_remove(uuid).flatten()
    }

    /// Compares what is left with the datasets that are there. Returns those that are left now and were not, and those
    /// that were and are not.
    pub fn compare(&mut self, datasets: &Datasets) -> (Vec<String>, Vec<String>) {
        let (mut left, mut ended) = (Vec::new(), Vec::new());
        for (uuid, known) in &mut self.0 {
            let now = dataset_of(datasets, uuid);
            if *known != now {
                ended.extend(std::mem::replace(known, now.clone()));
                left.extend(now);
            }
        }
        (left, ended)
    }
}

/// Returns the dataset of the VM with this uuid, of its own directory or of a disk.
pub fn dataset_of(datasets: &Datasets, uuid: &str) -> Option<String> {
    if !is_lower_uuid(uuid) {
        return None;
    }
    let is_own = |name: &str| {
        let rest = name.split_once('/').and_then(|(_, rest)| rest.strip_prefix(uuid));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("-disk"))
    };
    datasets.rows().map(|row| row.name()).filter(|name| is_own(name)).min().map(str::to_owned)
}

/// Returns the command that gives a dataset that is left of a VM another name. It destroys nothing: whose it is, nobody
/// has proved.
pub fn sets_aside(dataset: &str) -> String {
    let need = find("vminfod-left-dataset").expect("invariant: the table has it");
    let aside = dataset.replacen('/', "/left-", 1);
    need.command_for(&[("DATASET", dataset), ("ASIDE", &aside)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disagreement_names_the_witness_that_lacks_the_zone() {
        for (row, index, xml, lacking) in [
            (true, true, false, "zone_xml"),
            (true, false, false, "zone_xml"),
            (false, true, true, "zoneadm"),
            (false, true, false, "zoneadm"),
            (false, false, true, "zone index"),
        ] {
            let witnesses = Witnesses { row, index, xml };
            assert!(!witnesses.are_silent() && witnesses.lacking() == lacking, "{witnesses}");
        }
        assert!(Witnesses::default().are_silent());
    }

    #[test]
    fn memory_of_what_went_is_bounded() {
        let mut departed = Departed::default();
        for n in 0..=MOST_DEPARTED {
            departed.note(n.to_string().into());
        }
        assert!(!departed.has("0") && departed.has("1") && departed.0.len() == MOST_DEPARTED);
        departed.forget("1");
        assert!(!departed.has("1"));
    }
}
