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
use crate::load::{Ctx, LoadError, ZoneRow, zoneadm};
use crate::root::Root;
use crate::sources::watch::Zones;
use crate::walk::Haste;

/// Where sysinfo(8) leaves what it found.
const SYSINFO: &str = "/tmp/.sysinfo.json";

/// One look.
#[derive(Debug)]
pub struct Look {
    /// zoneadm's rows.
    pub rows: Result<Vec<ZoneRow>, LoadError>,
    /// The files.
    pub files: Arc<Files>,
}

/// What was seen of the files.
#[derive(Debug, Default)]
pub struct Files {
    root: Option<Root>,
    /// The list that was looked at, as it was given …
    list: Zones,
    /// … and one by one: zone, zonepath.
    names: Arc<[(String, String)]>,
    /// The stamps of each; `None` where they could not be taken.
    stamps: Vec<Option<Stamps>>,
    /// Zones whose file systems do not answer.
    pub hanging: Vec<String>,
    /// The stamp of the sysinfo file, if it is there.
    pub sysinfo: Option<u64>,
}

/// Looks at the node. `before`: the last look, of which the list is taken if it is the same.
pub async fn look(ctx: &Ctx, zones: Zones, before: Arc<Files>) -> Look {
    let (rows, files) = tokio::join!(zoneadm::list(ctx), files(&ctx.root, zones, &before));
    Look { rows, files: Arc::new(files) }
}

async fn files(root: &Root, list: Zones, before: &Files) -> Files {
    let names: Arc<[(String, String)]> = if Arc::ptr_eq(&list, &before.list) {
        Arc::clone(&before.names)
    } else {
        list.iter().map(|(zone, path)| (zone.clone(), path.clone())).collect()
    };
    let (looked_at, places) = (Arc::clone(&names), names.iter().map(|(_, path)| path.clone()));
    let look = move |root: &Root, at: usize| {
        let (zone, zonepath) = looked_at.get(at)?;
        times::look(root, zone, zonepath).ok()
    };
    let sysinfo = root.on_files(SYSINFO, |root| times::of(&root.sysinfo()));
    let looks = root.walk(places.collect(), Haste::Now, look);
    let (sysinfo, looks) = tokio::join!(sysinfo, looks);
    let mut files = Files { sysinfo: sysinfo.ok().flatten(), ..Files::default() };
    files.stamps.reserve_exact(names.len());
    for ((zone, _), look) in names.iter().zip(looks) {
        if look.is_err() {
            files.hanging.push(zone.clone());
        }
        files.stamps.push(look.ok().flatten());
    }
    Files { root: Some(root.clone()), list, names, ..files }
}

impl Files {
    /// Zone, zonepath, stamps; zones whose files could not be looked at are left out.
    pub fn zones(&self) -> impl Iterator<Item = (&String, &String, &Stamps)> {
        let all = self.names.iter().zip(&self.stamps);
        all.filter_map(|((zone, zonepath), stamps)| Some((zone, zonepath, stamps.as_ref()?)))
    }

    /// Files that exist, and files that do not, each list sorted.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        let Some(root) = &self.root else { return (there, missing) };
        let mut note = |path: PathBuf, is_there: bool| {
            let list = if is_there { &mut there } else { &mut missing };
            list.push(path.display().to_string());
        };
        for (zone, zonepath, stamps) in self.zones() {
            for (at, path) in times::files(root, zone, zonepath).into_iter().enumerate() {
                note(path, stamps.has(at));
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
        let (there, missing) = files.presence();
        assert!(there.iter().any(|path| path.ends_with("tags.json")), "{there:?}");
        assert_eq!((there.len(), missing.len()), (2, 4));
        assert_eq!(Files::default().presence(), (Vec::new(), Vec::new()));
    }
}
