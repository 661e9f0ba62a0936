// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a name in a directory of the node means, and to which zones: found from the zonepaths when
//! it is asked, since to keep an answer for each file of very many zones would take more memory
//! than the zones themselves.
//!
//! Pure.

use std::path::{Component, Path};
use std::sync::Arc;

use super::super::ZoneFile;
use super::super::watch::{CONFIG_FILES, Zones};

/// What a name in a watched directory means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A file of a zone.
    File(ZoneFile),
    /// A directory on the way to a zone's files.
    Way,
}

/// Zonepaths below the root, in order, each with its zone.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    path: Arc<str>,
    /// Bytes of it that are not below the root: nearly all zonepaths are so written that this is
    /// enough to leave out.
    skip: u8,
    zone: Arc<str>,
}

impl Place {
    fn of(zone: &Arc<str>, path: &Arc<str>) -> Self {
        let (zone, below) = (Arc::clone(zone), below(path));
        match path.strip_prefix('/') {
            Some(rest) if *rest == *below => Place { path: Arc::clone(path), skip: 1, zone },
            _ => Place { path: below.into(), skip: 0, zone },
        }
    }

    fn path(&self) -> &str {
        self.path.get(usize::from(self.skip)..).unwrap_or_default()
    }
}

impl Places {
    pub(super) fn of(zones: &Zones) -> Self {
        let mut places: Vec<Place> =
            zones.iter().map(|(zone, path)| Place::of(zone, path)).collect();
        places.sort_by(|a, b| (a.path(), &a.zone).cmp(&(b.path(), &b.zone)));
        Places(places)
    }

    /// What this name in this directory below the root (the root itself is empty) means, to whom.
    pub(super) fn meanings(&self, dir: &str, name: &str) -> Vec<(String, Meaning)> {
        let mut found = Vec::new();
        let mut add = |zone: &str, meaning| found.push((zone.to_owned(), meaning));
        let is_config = name.strip_suffix(".json").is_some_and(|name| CONFIG_FILES.contains(&name));
        if is_config && let Some(path) = of_config(dir) {
            self.at(path).for_each(|zone| add(zone, Meaning::File(ZoneFile::Config)));
        }
        if name == "lastexited" {
            self.at(dir).for_each(|zone| add(zone, Meaning::File(ZoneFile::LastExited)));
        }
        let way = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
        self.through(&way).for_each(|zone| add(zone, Meaning::Way));
        found
    }

    /// The text of the zonepath that is this path below the root with a slash before it.
    pub(super) fn zonepath(&self, path: &str) -> Option<Arc<str>> {
        let place = self.0.get(self.0.partition_point(|place| place.path() < path))?;
        (place.path() == path && place.skip > 0).then(|| Arc::clone(&place.path))
    }

    /// Is this directory below the root on the way to a zone's files, or does it hold some?
    pub(super) fn need(&self, dir: &str) -> bool {
        self.through(dir).next().is_some()
    }

    /// The zones whose directory of configuration is this one or stands below it.
    fn through(&self, way: &str) -> impl Iterator<Item = &str> {
        let own = of_config(way).into_iter().flat_map(|path| self.at(path));
        let from = self.0.partition_point(|place| place.path() < way);
        let rest = self.0.get(from..).unwrap_or_default().iter();
        let below =
            rest.map_while(move |place| Some((place.path().strip_prefix(way)?, &place.zone)));
        let whole = move |rest: &str| way.is_empty() || rest.is_empty() || rest.starts_with('/');
        own.chain(below.filter(move |(rest, _)| whole(rest)).map(|(_, zone)| &**zone))
    }

    /// The zones at this zonepath.
    fn at(&self, path: &str) -> impl Iterator<Item = &str> {
        let from = self.0.partition_point(|place| place.path() < path);
        let same = self.0.get(from..).unwrap_or_default().iter();
        same.take_while(move |place| place.path() == path).map(|place| &*place.zone)
    }
}

/// The zonepath whose directory of configuration this is.
fn of_config(dir: &str) -> Option<&str> {
    if dir == "config" { Some("") } else { dir.strip_suffix("/config") }
}

/// A path of the node below its root, as [`crate::root::Root::path`] takes it.
fn below(path: &str) -> String {
    let parts = Path::new(path).components().filter_map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;

    fn places(zones: &[(&str, &str)]) -> Places {
        let zones = zones.iter().map(|(zone, path)| ((*zone).into(), (*path).into()));
        Places::of(&Arc::new(zones.collect::<BTreeMap<_, _>>()))
    }

    #[test]
    fn every_name_on_the_way_means_its_zones_and_no_others() {
        let places = places(&[("a", "/zones/a"), ("ab", "/zones/a-b"), ("c", "//zones/./a/c/")]);
        let of = |dir, name| {
            let found = places.meanings(dir, name);
            let text = |(zone, meaning): (String, Meaning)| match meaning {
                Meaning::File(file) => format!("{zone} {file:?}"),
                Meaning::Way => zone,
            };
            let mut found: Vec<String> = found.into_iter().map(text).collect();
            found.sort();
            found.join(", ")
        };
        assert_eq!(of("", "zones"), "a, ab, c");
        assert_eq!(of("zones", "a"), "a, c");
        assert_eq!(of("zones", "a-b"), "ab");
        assert_eq!(of("zones/a", "config"), "a");
        assert_eq!(of("zones/a", "lastexited"), "a LastExited");
        assert_eq!(of("zones/a/config", "tags.json"), "a Config");
        assert_eq!(of("zones/a/c/config", "metadata.json"), "c Config");
        for (dir, name) in [
            ("", "zone"),
            ("zones", "b"),
            ("zones/a", "tags.json"),
            ("zones/a/config", "lastexited"),
            ("zones/a/config", "other.json"),
            ("zones/a/config", "tags"),
            ("config", "tags.json"),
        ] {
            assert_eq!(of(dir, name), "", "{dir} {name}");
        }
        for dir in ["", "zones", "zones/a", "zones/a/config", "zones/a/c/config"] {
            assert!(places.need(dir), "{dir}");
        }
        assert!(!places.need("zones/a/other") && !places.need("zone") && !places.need("zones/a-"));
        assert!(!Places::default().need(""));
    }

    #[test]
    fn a_zone_may_be_the_root() {
        let places = places(&[("z", "/")]);
        assert_eq!(places.meanings("", "config"), [("z".to_owned(), Meaning::Way)]);
        let config = [("z".to_owned(), Meaning::File(ZoneFile::Config))];
        assert_eq!(places.meanings("config", "tags.json"), config);
        assert!(places.need("") && places.need("config") && !places.need("zones"));
    }
}
