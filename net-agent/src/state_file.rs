// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state file: what must outlive the process. It is versioned and replaced as a whole. If it is
//! damaged, of another version or of another node, the worst is assumed: everything may have been
//! hidden, and the number of recent deletes is unknown. So a restart or a crash may delay a delete
//! but never causes a wrong one.

use std::collections::{BTreeMap, BTreeSet};

use daemon::brake::SavedDay;
use daemon::state_file::{State, WallTime};
use sdc_clients::MacAddr;
use serde::{Deserialize, Serialize};

use crate::departures::{Left, Waits};

/// The content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The VMs of the brake's reference view.
    #[serde(default)]
    pub reference: Option<BTreeSet<String>>,
    /// The VMs that were seen here since that was taken.
    #[serde(default)]
    pub seen: BTreeSet<String>,
    /// The VMs of a day ago.
    #[serde(default)]
    pub day: SavedDay,
    /// MACs of shown VMs, with their VMs.
    #[serde(default)]
    pub macs: BTreeMap<MacAddr, String>,
    /// VMs that were hidden shortly before they went, and when they went; none for those that were
    /// still here when this was written.
    #[serde(default)]
    pub hidden: BTreeMap<String, Option<WallTime>>,
    /// The NICs that left and are not settled.
    #[serde(default)]
    pub departed: Vec<SavedDeparture>,
    /// The deletes of the last hour.
    #[serde(default)]
    pub deletes: Vec<WallTime>,
    /// Those besides that VMAPI's word exempted from the brake.
    #[serde(default)]
    pub exempted: Vec<WallTime>,
    /// When an earlier file was found damaged.
    #[serde(default)]
    pub lost: Option<WallTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedDeparture {
    /// The address.
    pub mac: MacAddr,
    pub vm: String,
    /// How it left.
    pub left: Left,
    /// What it waits for.
    #[serde(default)]
    pub waits: Waits,
    /// Why it waits, in words.
    pub why: String,
}

impl State for Saved {
    const VERSION: u32 = 1;
    const UNWRITTEN: &str = "nothing is deleted while the state file cannot be written";

    fn is_same(&self, other: &Self) -> bool {
        let all = |one: &[WallTime], two: &[WallTime]| {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.is_close(*two))
        };
        (&self.reference, &self.seen) == (&other.reference, &other.seen)
            && self.day.is_same(&other.day)
            && self.macs == other.macs
            && WallTime::are_all_close(&self.hidden, &other.hidden)
            && self.departed == other.departed
            && all(&self.deletes, &other.deletes)
            && all(&self.exempted, &other.exempted)
            && WallTime::are_close(self.lost, other.lost)
    }

    fn lost(&self) -> Option<WallTime> {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use daemon::state_file::{Damage, StateFile};
    use jiff::Timestamp;

    use super::*;

    fn kept() -> Saved {
        let at = WallTime(Timestamp::from_second(1_800_000_000).unwrap());
        let mac: MacAddr = "f2:00:00:00:00:01".parse().unwrap();
        Saved {
            reference: Some(["v".to_owned(), "w".to_owned()].into()),
            macs: [(mac, "v".to_owned())].into(),
            hidden: [("h".to_owned(), Some(at)), ("here".to_owned(), None)].into(),
            departed: vec![SavedDeparture {
                mac,
                vm: "v".into(),
                left: Left::WithVm,
                waits: Waits::Verdict,
                why: "VMAPI says running".into(),
            }],
            deletes: vec![at],
            exempted: vec![at, at],
            lost: Some(at),
            ..Saved::default()
        }
    }

    #[tokio::test]
    async fn reads_only_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file_of = |node| StateFile::new(dir.path(), node, Arc::default());
        let file = file_of("cn");
        assert!(file.read::<Saved>().await.unwrap().is_none());
        file.write(kept()).await.unwrap();
        assert_eq!(file.read().await.unwrap(), Some(kept()));
        assert!(matches!(file_of("other").read::<Saved>().await, Err(Damage::Node { .. })));
        let path = dir.path().join("memory.json");
        let whole = std::fs::read_to_string(&path).unwrap();
        for cut in (0..whole.trim_end().len()).step_by(7) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(file.read::<Saved>().await.is_err(), "cut at {cut}");
        }
        std::fs::write(&path, whole.replace("\"version\": 1", "\"version\": 2")).unwrap();
        assert!(matches!(file.read::<Saved>().await, Err(Damage::Version { found: 2, .. })));
        file.keep_damaged().await;
        assert!(path.with_extension("damaged").exists());
    }
}
