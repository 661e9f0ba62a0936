// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How the receiver's tree of datasets becomes the sender's: what was renamed or promoted there is so here, and what is
//! gone goes. A dataset is known by its snapshots, never by its name.

use std::collections::{BTreeMap, BTreeSet};

use super::act::{Act, Refusal};
use super::datasets::{Mode, Sent, is_below};
use super::side::{Row, Side, number_of};

/// A dataset that is in the way of another one has this name meanwhile, and a number.
const ASIDE: &str = "vm-migration-aside-";
/// Clones of clones are looked at so deep.
const DEEPEST: usize = 64;

/// Both trees.
pub struct Shape<'a> {
    from: &'a Side,
    to: &'a Side,
    trees: Vec<&'a str>,
    /// The sender's datasets inside the trees that have the goal.
    wanted: BTreeSet<&'a str>,
    /// The receiver's datasets inside the trees, and what each is on the sender.
    homes: BTreeMap<&'a str, Option<&'a str>>,
    /// The receiver's datasets may be destroyed.
    may_destroy: bool,
}

impl<'a> Shape<'a> {
    /// Compares the trees that are sent with all that is below them; `goal` is the snapshot that both are to have.
    pub fn new(
        sent: &'a [Sent],
        from: &'a Side,
        to: &'a Side,
        goal: &str,
        may_destroy: bool,
    ) -> Shape<'a> {
        let trees: Vec<&str> = sent
            .iter()
            .filter(|it| it.mode == Mode::Replicate)
            .map(|it| it.dataset.as_str())
            .collect();
        let inside = |name: &&str| trees.iter().any(|tree| is_below(name, tree));
        let has_goal = |name: &&str| from.of(name).iter().any(|row| row.name == goal);
        let names = from.datasets.iter().map(String::as_str);
        let wanted: BTreeSet<&str> = names.filter(inside).filter(has_goal).collect();
        let places: BTreeMap<u64, &str> =
            from.snapshots.iter().map(|row| (row.guid, row.dataset.as_str())).collect();
        let home = |name: &str| {
            let newest = to.of(name).into_iter().rev();
            let mut places = newest.filter_map(|row| places.get(&row.guid).copied());
            places.next().filter(|place| wanted.contains(place))
        };
        let here = to.datasets.iter().map(String::as_str).filter(inside);
        let homes = here.map(|name| (name, home(name))).collect();
        Shape { from, to, trees, wanted, homes, may_destroy }
    }

    /// Returns what comes before any stream: a promotion or a renaming on the receiver.
    /// Fails where a dataset that is none of the sender's is in the way and may not go.
    pub fn before(&self) -> Result<Option<Act>, Refusal> {
        if let Some(clone) = self.promoted() {
            return Ok(Some(Act::Promote(clone)));
        }
        let mut blocked = None;
        for (name, home) in self.moved() {
            let is_up = |parent: &str| {
                self.to.datasets.iter().any(|it| it == parent) && !is_below(home, name)
            };
            match home.rsplit_once('/') {
                // What it is moved into does not exist yet, or is it itself: it makes room for that.
                Some((parent, _)) if !is_up(parent) => {
                    if self.wanted.contains(name) || is_below(home, name) {
                        return Ok(Some(self.aside(name)));
                    }
                }
                _ if self.homes.contains_key(home) => blocked = blocked.or(Some(home)),
                _ => return Ok(Some(rename(name, home))),
            }
        }
        match blocked {
            None => Ok(None),
            Some(taken) if self.homes.get(taken).is_some_and(Option::is_some) => {
                Ok(Some(self.aside(taken)))
            }
            Some(taken) if self.may_destroy => Ok(Some(self.destroy(taken, 0))),
            Some(taken) => Err(Refusal::NothingInCommon(taken.to_owned())),
        }
    }

    /// Returns what goes when all streams have arrived.
    pub fn after(&self) -> Option<Act> {
        // Of a copy that must not be replaced only what its owner could destroy goes.
        let may_go = |name: &str| self.may_destroy || is_deep(name);
        let mut extra = self.homes.keys().filter(|name| !self.wanted.contains(**name));
        let extra = extra.find(|name| may_go(name));
        if let Some(name) = extra {
            return Some(self.destroy(name, 0));
        }
        let names = self.trees.iter().copied().chain(self.wanted.iter().copied());
        let extra = names.map(|name| self.extra(name)).find(|extra| !extra.is_empty());
        extra.filter(|_| self.may_destroy).map(|extra| self.destroy_snapshots(extra))
    }

    /// Destroys a dataset of the receiver. What is below it and has another home, and what is cloned from it, goes out of
    /// the way first.
    pub fn destroy(&self, name: &str, depth: usize) -> Act {
        let within = |it: &str| it == name || is_below(it, name);
        let has_home = |(it, home): &(&&str, &Option<&str>)| {
            home.is_some() && is_below(it, name) && self.may_destroy
        };
        // With the top of what is delegated all goes: there is no other place that is the zone's.
        if let Some((kept, _)) = self.homes.iter().find(has_home)
            && !within(&top_of(kept))
        {
            return self.aside(kept);
        }
        let guids: BTreeSet<u64> = self
            .to
            .snapshots
            .iter()
            .filter(|row| within(&row.dataset))
            .map(|row| row.guid)
            .collect();
        match self.clone_of(&guids, within) {
            Some(clone) if depth < DEEPEST => self.away(clone, depth),
            _ => Act::DestroyDataset(name.to_owned()),
        }
    }

    /// Destroys snapshots of the receiver, what is cloned from them first.
    pub fn destroy_snapshots(&self, names: Vec<String>) -> Act {
        let of = |row: &&Row| names.contains(&row.full_name());
        let guids = self.to.snapshots.iter().filter(of).map(|row| row.guid).collect();
        match self.clone_of(&guids, |_| false) {
            Some(clone) => self.away(clone, 0),
            None => Act::DestroySnapshots(names),
        }
    }

    /// Takes a clone from what it was made of: one that stays has all of it from then on.
    fn away(&self, clone: &str, depth: usize) -> Act {
        match self.homes.get(clone).is_some_and(Option::is_some) {
            true => Act::Promote(clone.to_owned()),
            false => self.destroy(clone, depth + 1),
        }
    }

    /// A clone of one of these snapshots, outside of something.
    fn clone_of(&self, guids: &BTreeSet<u64>, within: impl Fn(&str) -> bool) -> Option<&str> {
        let mut clones = self.to.origins.iter().filter(|(_, guid)| guids.contains(guid));
        let (clone, _) =
            clones.find(|(name, _)| !within(name) && self.homes.contains_key(name.as_str()))?;
        Some(clone)
    }

    /// A clone that was promoted on the sender: what it was made of is its own there.
    fn promoted(&self) -> Option<String> {
        let is_own = |(name, guid): &&(String, u64)| {
            let home = self.homes.get(name.as_str()).copied().flatten();
            home.is_some_and(|home| self.from.of(home).iter().any(|row| row.guid == *guid))
        };
        self.to.origins.iter().find(is_own).map(|(name, _)| name.clone())
    }

    /// The datasets that have another name on the sender, one for each name.
    fn moved(&self) -> Vec<(&'a str, &'a str)> {
        let mut taken = BTreeSet::new();
        let away = self.homes.iter().filter_map(|(name, home)| Some((*name, (*home)?)));
        let is_first = |(name, home): &(&'a str, &'a str)| {
            let is_home = self.homes.get(home).copied().flatten() == Some(*home);
            name != home && !is_home && taken.insert(*home)
        };
        away.filter(is_first).collect()
    }

    /// Renames a dataset to a name that nobody has: below the same delegated dataset, so that it stays the zone's.
    fn aside(&self, name: &str) -> Act {
        let top = top_of(name);
        let is_free =
            |name: &String| !self.to.datasets.contains(name) && !self.from.datasets.contains(name);
        let mut names = (1..u32::MAX).map(|number| format!("{top}/{ASIDE}{number}"));
        let free = names.find(is_free).unwrap_or_default();
        rename(name, &free)
    }

    /// The receiver's snapshots of a dataset that the sender has no more. Sync snapshots go by an order of their own.
    fn extra(&self, name: &str) -> Vec<String> {
        let ours = self.from.of(name);
        let is_ours = |row: &&Row| ours.iter().any(|own| own.guid == row.guid);
        let theirs = self.to.of(name).into_iter().filter(|row| !is_ours(row));
        theirs.filter(|row| number_of(&row.name).is_none()).map(Row::full_name).collect()
    }
}

/// Returns true for a dataset below what is a VM's own, such as what is delegated: its owner makes and destroys those.
pub fn is_deep(name: &str) -> bool {
    name.split('/').count() > 3
}

/// What is delegated, of a dataset below it.
fn top_of(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    parts[..parts.len().saturating_sub(1).min(3)].join("/")
}

fn rename(from: &str, to: &str) -> Act {
    Act::Rename { from: from.to_owned(), to: to.to_owned() }
}
