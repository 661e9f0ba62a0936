// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The cheap look at everything every few seconds: one `zoneadm list` and a stat of each file that
//! an object is made of. What differs from what was read is what no event announced.
//!
//! Reads only stamps, never contents; must never change anything itself.

use std::path::PathBuf;
use std::sync::Arc;

use crate::load::times::{self, Stamps};
use crate::load::zoneadm::{self, Listed};
use crate::load::{Ctx, LoadError};
use crate::root::Root;
use crate::sources::watch::Zones;
use crate::walk::Haste;

/// Where sysinfo(8) leaves what it found.
const SYSINFO: &str = "/tmp/.sysinfo.json";
/// The files of a zone could be looked at.
const SEEN: u8 = 1 << times::FILES;

/// One look.
#[derive(Debug)]
pub struct Look {
    /// zoneadm's rows; `None`: they were not asked for.
    pub rows: Option<Result<Arc<Listed>, LoadError>>,
    /// The files.
    pub files: Files,
    /// Nobody watched them before, so nothing can have announced what is found.
    pub unseen: bool,
}

/// What was seen of the files.
#[derive(Debug, Default)]
pub struct Files {
    root: Option<Root>,
    /// The list that was looked at, as it was given …
    list: Zones,
    /// … and one by one: zone, zonepath.
    names: Arc<[(Arc<str>, Arc<str>)]>,
    /// The stamps of each, until they were compared; `None` where they could not be taken.
    stamps: Vec<Option<Stamps>>,
    /// What is remembered of them then: a bit for each file that was there, and [`SEEN`].
    there: Vec<u8>,
    /// Zones whose file systems do not answer.
    pub hanging: Vec<String>,
    /// The stamp of the sysinfo file, if it is there.
    pub sysinfo: Option<u64>,
}

/// Looks at the node. `before`, `listed`: the last look and list, which are used again as far as they
/// are the same; without a list only the files are looked at.
pub async fn look(
    ctx: &Ctx,
    zones: Zones,
    before: Arc<Files>,
    listed: Option<Arc<Listed>>,
) -> Look {
    let rows = async {
        match &listed {
            Some(listed) => Some(zoneadm::list_after(ctx, listed).await),
            None => None,
        }
    };
    let (rows, files) = tokio::join!(rows, files(&ctx.root, zones, &before));
    Look { rows, files, unseen: false }
}

async fn files(root: &Root, list: Zones, before: &Files) -> Files {
    let names: Arc<[(Arc<str>, Arc<str>)]> = if Arc::ptr_eq(&list, &before.list) {
        Arc::clone(&before.names)
    } else {
        list.iter().map(|(zone, path)| (zone.clone(), path.clone())).collect()
    };
    let (looked_at, places) = (Arc::clone(&names), names.iter().map(|(_, path)| Arc::clone(path)));
    let look = move |root: &Root, at: usize| {
        let (zone, zonepath) = looked_at.get(at)?;
        times::look(root, zone, zonepath).ok()
    };
    let sysinfo = root.on_files(SYSINFO, |root| times::of(root, &root.sysinfo()));
    let looks = root.walk(places.collect(), Haste::Now, look);
    let (sysinfo, looks) = tokio::join!(sysinfo, looks);
    let mut files = Files { sysinfo: sysinfo.ok().flatten(), ..Files::default() };
    files.stamps.reserve_exact(names.len());
    for ((zone, _), look) in names.iter().zip(looks) {
        if look.is_err() {
            files.hanging.push(zone.to_string());
        }
        files.stamps.push(look.ok().flatten());
    }
    Files { root: Some(root.clone()), list, names, ..files }
}

impl Files {
    /// Zone, zonepath, stamps; zones whose files could not be looked at are left out.
    pub fn zones(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Stamps)> {
        let all = self.names.iter().zip(&self.stamps);
        all.filter_map(|((zone, zonepath), stamps)| Some((zone, zonepath, stamps.as_ref()?)))
    }

    /// The same when the stamps are no longer needed, in little memory.
    pub fn compared(mut self) -> Files {
        let bits = |stamps: &Stamps| {
            (0..times::FILES).fold(SEEN, |bits, file| bits | u8::from(stamps.has(file)) << file)
        };
        self.there = self.stamps.iter().map(|stamps| stamps.as_ref().map_or(0, bits)).collect();
        self.stamps = Vec::new();
        self
    }

    /// Files that exist, and files that do not, each list sorted.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        let Some(root) = &self.root else { return (there, missing) };
        let mut note = |path: PathBuf, is_there: bool| {
            let list = if is_there { &mut there } else { &mut missing };
            list.push(path.display().to_string());
        };
        let seen = self.names.iter().zip(&self.there).filter(|(_, bits)| **bits & SEEN != 0);
        for ((zone, zonepath), bits) in seen {
            for (at, path) in times::files(root, zone, zonepath).into_iter().enumerate() {
                note(path, bits & (1 << at) != 0);
            }
        }
        note(root.sysinfo(), self.sysinfo.is_some());
        there.sort();
        missing.sort();
        (there, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.config_dir("/zones/z")).unwrap();
        std::fs::write(root.config_file("/zones/z", "tags"), "{}").unwrap();
        let stamps = times::look(&root, "z", "/zones/z").unwrap();
        let files = Files {
            names: Arc::new([("z".into(), "/zones/z".into())]),
            stamps: vec![Some(stamps)],
            root: Some(root),
            sysinfo: Some(1),
            ..Files::default()
        };
        let (there, missing) = files.compared().presence();
        assert!(there.iter().any(|path| path.ends_with("tags.json")), "{there:?}");
        assert_eq!((there.len(), missing.len()), (2, 4));
        assert_eq!(Files::default().presence(), (Vec::new(), Vec::new()));
    }
}
