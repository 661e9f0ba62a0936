// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! ZFS history events → the datasets to list again.
//!
//! Leaves out names that zfs cannot list (`%recv`, `%rollback`), and the children of a delegated
//! dataset, which a zone can create in any number.

use serde_json::{Map, Value};

use super::text::is_lower_uuid;

/// What to do about a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// List it again.
    Fetch,
    Expire,
}

impl Action {
    /// Returns its name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Action::Fetch => "fetch",
            Action::Expire => "expire",
        }
    }
}

/// An event of a filesystem, volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetEvent {
    pub name: String,
    /// What to do.
    pub action: Action,
    /// It was rolled back: its files have to be read again.
    pub rolled_back: bool,
    /// It was renamed from or to this name, with its children.
    pub renamed: bool,
}

/// Returns the datasets that an event with these attributes is about.
pub fn events(data: &Map<String, Value>) -> Vec<DatasetEvent> {
    let text = |key: &str| data.get(key).and_then(Value::as_str);
    let (Some(raw), Some(action)) = (text("history_dsname"), text("history_internal_name")) else {
        return Vec::new();
    };
    let (name, temporary) = match raw.strip_suffix("/%rollback") {
        Some(name) => (name, true),
        None => (raw, false),
    };
    if temporary && action != "clone swap" || !is_listable(name) || below_delegated(name) {
        return Vec::new();
    }
    let signal = |name: &str, action, renamed| DatasetEvent {
        name: name.to_owned(),
        action,
        rolled_back: false,
        renamed,
    };
    match action {
        "receive" => Vec::new(),
        "destroy" => vec![signal(name, Action::Expire, false)],
        "clone swap" => {
            vec![DatasetEvent { rolled_back: true, ..signal(name, Action::Fetch, false) }]
        }
        "rename" => {
            // The event names the old name; the text has the new one.
            let new = text("history_internal_str").and_then(|text| text.split_once("-> "));
            // A name may end with a blank.
            let new = new.map(|(_, new)| new);
            let new = new.filter(|new| is_listable(new) && !below_delegated(new));
            let mut both = vec![signal(name, Action::Fetch, true)];
            both.extend(new.map(|new| signal(new, Action::Fetch, true)));
            both
        }
        // create, clone, snapshot, set, inherit, hold, release, finish receiving, promote, upgrade
        // and unknown actions: a listing is cheap and never wrong.
        _ => vec![signal(name, Action::Fetch, false)],
    }
}

/// Returns the uuid of the VM that a dataset belongs to: the first in the second part of its name.
pub fn vm_uuid(name: &str) -> Option<&str> {
    let dataset = name.split('@').next()?;
    let second = dataset.split('/').nth(1)?;
    (0..second.len().saturating_sub(35))
        .find_map(|at| second.get(at..at + 36).filter(|text| is_lower_uuid(text)))
}

/// Returns the number of parts of the dataset's name.
pub fn depth(name: &str) -> usize {
    name.split('@').next().unwrap_or(name).split('/').count()
}

/// Returns the pool of a dataset or snapshot.
pub fn pool(name: &str) -> &str {
    name.split(['/', '@']).next().unwrap_or(name)
}

/// Returns true if zfs can list a dataset of this name.
fn is_listable(name: &str) -> bool {
    let mut halves = name.split('@');
    let (dataset, snapshot) = (halves.next().unwrap_or(""), halves.next());
    halves.next().is_none()
        && snapshot
            .is_none_or(|name| !name.is_empty() && !name.starts_with('%') && !name.contains('/'))
        && !name.starts_with('-')
        && dataset.split('/').all(|part| !part.is_empty() && !part.starts_with('%'))
}

/// Returns true for `POOL/UUID/data/…`.
fn below_delegated(name: &str) -> bool {
    let mut parts = name.split('@').next().unwrap_or(name).split('/').skip(1);
    let (second, third, fourth) = (parts.next(), parts.next(), parts.next());
    second.is_some_and(is_lower_uuid) && third == Some("data") && fourth.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const U: &str = "7992e853-8812-4060-8b15-fff23517df24";

    /// The datasets of an event; with `<` those that were rolled back, with `-` those to remove.
    fn of(name: &str, action: &str, text: &str) -> String {
        let data = json!({"history_dsname": name, "history_internal_name": action, "history_internal_str": text});
        let shown = |event: DatasetEvent| {
            let action = if event.action == Action::Expire { "-" } else { "" };
            format!("{action}{}{}", if event.rolled_back { "<" } else { "" }, event.name)
        };
        events(data.as_object().unwrap()).into_iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_and_actions() {
        for action in "create clone snapshot set inherit hold release what?".split(' ') {
            assert_eq!(of("zones/a", action, ""), "zones/a", "{action}");
        }
        let delegated = format!("zones/{U}/data");
        for (name, action, found) in [
            ("zones/a", "finish receiving", "zones/a"),
            ("zones/a", "receive", ""),
            ("zones/a@s", "destroy", "-zones/a@s"),
            ("zones/a/%rollback", "destroy", ""),
            ("zones/a/%rollback", "clone swap", "<zones/a"),
            // Children of a delegated dataset are left out.
            (&format!("{delegated}/pg"), "create", ""),
            (&format!("{delegated}/pg@s"), "snapshot", ""),
            (&format!("{delegated}@s"), "snapshot", &format!("{delegated}@s")),
            ("zones/other/data/x", "create", "zones/other/data/x"),
        ] {
            assert_eq!(of(name, action, ""), found, "{name} {action}");
        }
        let odd = "zones/a/%recv zones/%recv zones/a@%temp a@b@c / -r zones//a zones/a@ zones/a@/%";
        for name in odd.split(' ').chain([""]) {
            assert_eq!(of(name, "create", ""), "", "{name:?}");
        }
    }

    #[test]
    fn a_rename_has_two_names() {
        assert_eq!(of("zones/a", "rename", "-> zones/b"), "zones/a zones/b");
        assert_eq!(of("zones/a", "rename", ""), "zones/a");
        assert_eq!(of("zones/a b", "rename", "-> zones/A:. "), "zones/a b zones/A:. ");
    }

    #[test]
    fn vms_of_datasets() {
        for (name, uuid) in [
            (format!("zones/{U}"), Some(U)),
            (format!("tank/{U}-disk0@s"), Some(U)),
            (format!("zones/{U}/disk0"), Some(U)),
            (format!("z/x-{U}"), Some(U)),
            ("zones".to_owned(), None),
            (format!("zones/cores/{U}"), None),
            (format!("zones/{}", U.to_uppercase()), None),
            (format!("z@{U}"), None),
            (format!("zones/{}", "\u{e9}".repeat(18)), None),
        ] {
            assert_eq!(vm_uuid(&name), uuid, "{name}");
        }
        assert_eq!((depth("zones/a/b@c/d"), depth("zones")), (3, 1));
        assert_eq!((pool("zones/a"), pool("zones@x")), ("zones", "zones"));
    }

    #[test]
    fn events_without_a_dataset_are_left_out() {
        for data in [json!({}), json!({"history_dsname": 1, "history_internal_name": "set"})] {
            assert!(events(data.as_object().unwrap()).is_empty(), "{data}");
        }
    }
}
