// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The cheap look at everything every few seconds: one `zoneadm list` and a stat of each file that
//! an object is made of. What differs from what was read is what no event announced.
//!
//! Reads only stamps, never contents; must never change anything itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::load::times::{self, Stamps};
use crate::load::{Ctx, LoadError, ZoneRow, zoneadm};
use crate::root::Root;

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
    /// Zone, zonepath, stamps; zones whose files could not be looked at are left out.
    pub zones: Vec<(String, String, Stamps)>,
    /// The stamp of the sysinfo file, if it is there.
    pub sysinfo: Option<u64>,
}

/// Looks at the node. `zones`: name → zonepath.
pub async fn look(ctx: &Ctx, zones: BTreeMap<String, String>) -> Look {
    let root = ctx.root.clone();
    let files = tokio::task::spawn_blocking(move || {
        let zones = zones.into_iter().filter_map(|(zone, zonepath)| {
            let stamps = times::look(&root, &zone, &zonepath).ok()?;
            Some((zone, zonepath, stamps))
        });
        let zones = zones.collect();
        Files { zones, sysinfo: times::of(&root.sysinfo()), root: Some(root) }
    });
    let (rows, files) = tokio::join!(zoneadm::list(ctx), files);
    Look { rows, files: Arc::new(files.unwrap_or_default()) }
}

impl Files {
    /// Files that exist, and files that do not, each list sorted.
    pub fn presence(&self) -> (Vec<String>, Vec<String>) {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        let Some(root) = &self.root else { return (there, missing) };
        let mut note = |path: PathBuf, is_there: bool| {
            let list = if is_there { &mut there } else { &mut missing };
            list.push(path.display().to_string());
        };
        for (zone, zonepath, stamps) in &self.zones {
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
            zones: vec![("z".into(), "/zones/z".into(), stamps)],
            root: Some(root),
            sysinfo: Some(1),
        };
        let (there, missing) = files.presence();
        assert!(there.iter().any(|path| path.ends_with("tags.json")), "{there:?}");
        assert_eq!((there.len(), missing.len()), (2, 4));
        assert_eq!(Files::default().presence(), (Vec::new(), Vec::new()));
    }
}
