// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The cheap look at everything every few seconds: one `zoneadm list` and a stat of each file that
//! an object is made of. What differs from what was read is what no event announced.
//!
//! Reads only stamps, never contents; must never change anything itself.

use std::collections::HashSet;
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
    /// What the look at each saw, as a digest; 0: nothing, or nothing that may be known again.
    saw: Vec<u64>,
    /// A bit for each file that was there, and [`SEEN`].
    there: Vec<u8>,
    /// The stamps of those that the look before saw otherwise, until they were compared.
    changed: Vec<(usize, Box<Stamps>)>,
    /// Zones whose file systems do not answer.
    pub hanging: Vec<String>,
    /// The stamp of the sysinfo file, if it is there.
    pub sysinfo: Option<u64>,
}

/// What was known before a look.
#[derive(Debug, Default)]
pub struct Before {
    /// The last one.
    pub files: Arc<Files>,
    /// Zones that were read since it began: what it saw of them is no answer any more.
    pub read_since: HashSet<Arc<str>>,
}

/// Looks at the node. `before`, `listed`: the last look and list, which are used again as far as they
/// are the same; without a list only the files are looked at.
pub async fn look(ctx: &Ctx, zones: Zones, before: Before, listed: Option<Arc<Listed>>) -> Look {
    let rows = async {
        match &listed {
            Some(listed) => Some(zoneadm::list_after(ctx, listed).await),
            None => None,
        }
    };
    let (rows, files) = tokio::join!(rows, files(&ctx.root, zones, before));
    Look { rows, files, unseen: false }
}

/// What a look at one zone's files saw.
enum Saw {
    /// What the look before did.
    Same,
    /// These.
    Other(Box<Stamps>),
    /// They cannot be looked at.
    Nothing,
}

async fn files(root: &Root, list: Zones, before: Before) -> Files {
    let is_same = Arc::ptr_eq(&list, &before.files.list);
    let names: Arc<[(Arc<str>, Arc<str>)]> = if is_same {
        Arc::clone(&before.files.names)
    } else {
        list.iter().map(|(zone, path)| (zone.clone(), path.clone())).collect()
    };
    let Before { files: last, read_since } = before;
    let last = if is_same { last } else { Arc::default() };
    let (looked_at, places) = (Arc::clone(&names), names.iter().map(|(_, path)| Arc::clone(path)));
    let look = {
        let last = Arc::clone(&last);
        move |root: &Root, at: usize| {
            let Some((zone, zonepath)) = looked_at.get(at) else { return Saw::Nothing };
            match times::look(root, zone, zonepath) {
                Ok(stamps) if last.saw(at) == stamps.digest() && !read_since.contains(zone) => {
                    Saw::Same
                }
                Ok(stamps) => Saw::Other(Box::new(stamps)),
                Err(_) => Saw::Nothing,
            }
        }
    };
    let sysinfo = root.on_files(SYSINFO, |root| times::of(root, &root.sysinfo()));
    let looks = root.walk(places.collect(), Haste::Now, look);
    let (sysinfo, looks) = tokio::join!(sysinfo, looks);
    let mut files = Files { sysinfo: sysinfo.ok().flatten(), ..Files::default() };
    files.saw.reserve_exact(names.len());
    files.there.reserve_exact(names.len());
    for (at, ((zone, _), look)) in names.iter().zip(looks).enumerate() {
        if look.is_err() {
            files.hanging.push(zone.to_string());
        }
        let (saw, there) = match look.unwrap_or(Saw::Nothing) {
            Saw::Same => (last.saw(at), last.there.get(at).copied().unwrap_or_default()),
            Saw::Other(stamps) => {
                let seen = (stamps.digest(), there(&stamps));
                files.changed.push((at, stamps));
                seen
            }
            Saw::Nothing => (0, 0),
        };
        files.saw.push(saw);
        files.there.push(there);
    }
    Files { root: Some(root.clone()), list, names, ..files }
}

fn there(stamps: &Stamps) -> u8 {
    (0..times::FILES).fold(SEEN, |bits, file| bits | u8::from(stamps.has(file)) << file)
}

impl Files {
    /// Zone, zonepath, stamps of the zones of which the look before saw something else, or after
    /// which they were read.
    pub fn changed(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Stamps)> {
        self.changed.iter().filter_map(|(at, stamps)| {
            let (zone, zonepath) = self.names.get(*at)?;
            Some((zone, zonepath, &**stamps))
        })
    }

    /// The same when the stamps are no longer needed, in little memory.
    pub fn compared(self) -> Files {
        Files { changed: Vec::new(), ..self }
    }

    fn saw(&self, at: usize) -> u64 {
        self.saw.get(at).copied().unwrap_or_default()
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
            there: vec![there(&stamps)],
            root: Some(root),
            sysinfo: Some(1),
            ..Files::default()
        };
        let (there, missing) = files.compared().presence();
        assert!(there.iter().any(|path| path.ends_with("tags.json")), "{there:?}");
        assert_eq!((there.len(), missing.len()), (2, 4));
        assert_eq!(Files::default().presence(), (Vec::new(), Vec::new()));
    }

    #[tokio::test]
    async fn what_was_judged_is_not_given_again_unless_the_zone_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let zones = ["y", "z"].map(|zone| (zone.into(), format!("/zones/{zone}").into()));
        let list: Zones = Arc::new(zones.into());
        for zone in ["y", "z"] {
            std::fs::create_dir_all(root.config_dir(&format!("/zones/{zone}"))).unwrap();
        }
        let mut last = Arc::new(Files::default());
        let mut changed = async |read_since: &[&str]| {
            let read_since = read_since.iter().map(|zone| Arc::from(*zone)).collect();
            let before = Before { files: Arc::clone(&last), read_since };
            let files = files(&root, Arc::clone(&list), before).await;
            let changed: Vec<String> = files.changed().map(|(zone, ..)| zone.to_string()).collect();
            last = Arc::new(files.compared());
            changed
        };
        assert_eq!(changed(&[]).await, ["y", "z"]);
        assert_eq!(changed(&[]).await, [""; 0]);
        std::fs::write(root.config_file("/zones/z", "tags"), "{}").unwrap();
        assert_eq!(changed(&["y"]).await, ["y", "z"]);
        assert_eq!(changed(&[]).await, [""; 0]);
        std::fs::remove_file(root.config_file("/zones/z", "tags")).unwrap();
        assert_eq!(changed(&[]).await, ["z"]);
        let (there, missing) = last.presence();
        assert_eq!((there.len(), missing.len()), (0, 11));
    }
}
