// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All VMs of a node in one answer, and what that answer lacks. Pure.

use std::collections::BTreeSet;

use ::http::{HeaderMap, HeaderValue};

use super::types::VmObject;

/// The header of `/vms` that names the zones in [`Incomplete::Zones`]; absent if there are none.
pub const INCOMPLETE: &str = "vminfod-incomplete";
/// The header of an answer that was read for its request: it repeats the value of `sync`. A vminfod that does not know
/// `sync` answers what it knew before, without this header.
pub const SYNCED: &str = "vminfod-sync";
/// The most bytes of names in it.
const NAMES_CAP: usize = 4 << 10;

/// All VMs of a node, as vminfod shows them.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The VMs, in the service's order.
    pub vms: Vec<VmObject>,
    /// What the service could not read.
    pub incomplete: Incomplete,
}

/// The zones about which a view says less than there is. Such a zone is missing among the VMs if it was
/// never read; otherwise its VM is shown as it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Incomplete {
    /// None: each zone of the node is shown as it was read.
    #[default]
    Nothing,
    /// These, by zone name.
    Zones(BTreeSet<String>),
    /// Any: the listing itself is incomplete.
    Everything,
}

impl Incomplete {
    /// Returns true if each zone of the node is shown as it was read.
    pub fn is_nothing(&self) -> bool {
        *self == Incomplete::Nothing
    }

    /// Returns true if the view may say less than there is about the zone of this name.
    pub fn has(&self, zonename: &str) -> bool {
        match self {
            Incomplete::Nothing => false,
            Incomplete::Zones(names) => names.contains(zonename),
            Incomplete::Everything => true,
        }
    }

    /// Reads the header. `*`, and a header without names or that is no text, mean everything.
    pub fn of(headers: &HeaderMap) -> Incomplete {
        let mut zones = BTreeSet::new();
        for value in headers.get_all(INCOMPLETE) {
            let Ok(text) = value.to_str() else { return Incomplete::Everything };
            zones.extend(text.split(',').map(|name| name.trim().to_owned()));
        }
        if zones.contains("*") || zones.contains("") {
            return Incomplete::Everything;
        }
        Incomplete::of_zones(zones)
    }

    /// These zones, or nothing.
    pub fn of_zones(names: impl IntoIterator<Item = String>) -> Incomplete {
        let zones: BTreeSet<String> = names.into_iter().collect();
        if zones.is_empty() { Incomplete::Nothing } else { Incomplete::Zones(zones) }
    }

    /// Returns the value of the header; `None` if nothing is incomplete. More names than fit in 4 KiB,
    /// and names that are none of a zone, are `*`.
    pub fn header(&self) -> Option<HeaderValue> {
        let is_in_names = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &String| !name.is_empty() && name.chars().all(is_in_names);
        let names = match self {
            Incomplete::Nothing => return None,
            Incomplete::Zones(names) if names.iter().all(is_name) => {
                names.iter().map(String::as_str).collect::<Vec<_>>().join(",")
            }
            Incomplete::Zones(_) | Incomplete::Everything => "*".to_owned(),
        };
        let fits = |names: &HeaderValue| names.len() <= NAMES_CAP;
        let value = HeaderValue::try_from(names).ok().filter(fits);
        Some(value.unwrap_or(HeaderValue::from_static("*")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_says_which_zones_are_incomplete() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(INCOMPLETE, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            Incomplete::of(&headers)
        };
        let zones = |names: &[&str]| Incomplete::Zones(names.iter().map(|&n| n.into()).collect());
        assert_eq!(of(&[]), Incomplete::Nothing);
        assert_eq!(of(&["a"]), zones(&["a"]));
        assert_eq!(of(&["b,a", " c "]), zones(&["a", "b", "c"]));
        for everything in [&["*"][..], &["a", "*"], &[""], &["a,,b"], &["\u{e9}"]] {
            assert_eq!(of(everything), Incomplete::Everything, "{everything:?}");
        }
        for (names, header) in [
            (vec!["b".to_owned(), "a".to_owned()], "a,b".to_owned()),
            (vec!["x".repeat(4096)], "x".repeat(4096)),
            (vec!["x".repeat(4097)], "*".to_owned()),
            (vec!["a".to_owned(), "b,c".to_owned()], "*".to_owned()),
            (vec![String::new()], "*".to_owned()),
        ] {
            assert_eq!(Incomplete::of_zones(names).header().unwrap(), header);
        }
        assert_eq!(Incomplete::of_zones([]).header(), None);
        assert!(of(&[]).is_nothing() && !of(&["a"]).is_nothing());
        let has = |incomplete: Incomplete| (incomplete.has("a"), incomplete.has("b"));
        assert_eq!(has(of(&[])), (false, false));
        assert_eq!((has(of(&["a"])), has(of(&["*"]))), ((true, false), (true, true)));
    }
}
