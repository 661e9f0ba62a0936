// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From a listing to its tables. Of twenty thousand lines nearly all, and most often all, say what
//! they said in the listing before: such a line is compared as bytes, and neither taken apart nor
//! kept a second time. Where no line says anything else, the older tables are the new ones.
//!
//! Must never take a listing for the older one that lacks a line, has one twice, or has them in
//! another order where the order counts.

use std::collections::HashSet;
use std::sync::Arc;

use super::tables::{ByName, Datasets, Seen, Snapshot, Tables, is_deep};
use super::{COUNT, Column, Lines, NAME, Row};
use crate::load::LoadError;

/// Makes the tables of a listing while it is read; nothing of them is seen before its end.
#[derive(Default)]
pub struct Builder {
    reader: Lines,
    older: Datasets,
    /// While every line has said what it said.
    same: Option<Same>,
    /// From the first line on that did not.
    tables: Tables,
    seen: Seen,
}

/// How much of an older listing was met again.
#[derive(Default)]
struct Same {
    /// Its datasets, each later in the older listing than the one before it, so none twice.
    rows: Vec<Arc<Row>>,
    turn: u64,
    /// The datasets whose snapshots were met before those of the current one.
    lists: HashSet<Box<str>>,
    /// Whose snapshots are being met, and how many bytes of their list were.
    list: Option<(Box<str>, usize)>,
}

impl Builder {
    /// For a listing most of which says what these tables say.
    pub fn after(older: Datasets) -> Builder {
        let same = (!older.is_empty())
            .then(|| Same { rows: Vec::with_capacity(older.0.rows.len()), ..Same::default() });
        Builder { older, same, ..Builder::default() }
    }

    /// Takes the next line in.
    pub fn line(&mut self, line: &[u8]) {
        let kept = name_in(line).and_then(|name| self.older.0.rows.get(name));
        if let Some(kept) = kept.filter(|kept| kept.row.is_of(line)) {
            self.reader.known();
            if self.same.as_mut().is_some_and(|same| same.has_row(kept)) {
                return;
            }
            let row = Arc::clone(&kept.row);
            self.differ();
            self.tables.insert(row, &mut self.seen);
            return;
        }
        let older = &self.older;
        if self.same.as_mut().is_some_and(|same| same.has_snapshot(older, line)) {
            self.reader.known();
            return;
        }
        if let Some(row) = self.reader.row(line) {
            self.differ();
            self.tables.insert(Arc::new(row), &mut self.seen);
        }
    }

    /// The datasets, if every line was good.
    pub fn finish(mut self) -> Result<Datasets, LoadError> {
        if let Some(fault) = self.reader.fault {
            return Err(fault);
        }
        if self.same.as_ref().is_some_and(|same| same.is_all_of(&self.older)) {
            return Ok(self.older);
        }
        self.differ();
        self.tables.shrink();
        Ok(Datasets(Arc::new(self.tables)))
    }

    /// From here on it is another listing: what was met of the older one is its beginning.
    fn differ(&mut self) {
        let Some(same) = self.same.take() else { return };
        for row in same.rows {
            self.tables.insert(row, &mut self.seen);
        }
        for dataset in same.lists {
            if let Some(list) = self.older.0.snapshots.get(&dataset) {
                self.tables.snapshots.insert(dataset, list.clone());
            }
        }
        if let Some((dataset, met)) = same.list
            && let Some(list) = self.older.0.snapshots.get(&dataset)
        {
            self.tables.snapshots.insert(dataset, list.first(met));
        }
    }
}

impl Same {
    /// Takes a dataset as met, if it is not in another place.
    fn has_row(&mut self, kept: &ByName) -> bool {
        let later = kept.turn > self.turn;
        if later {
            self.turn = kept.turn;
            self.rows.push(Arc::clone(&kept.row));
        }
        later
    }

    /// Takes a snapshot as met, if this line of a listing is the next one of the older list.
    fn has_snapshot(&mut self, older: &Datasets, line: &[u8]) -> bool {
        self.next_snapshot(older, line).is_some()
    }

    fn next_snapshot(&mut self, older: &Datasets, line: &[u8]) -> Option<()> {
        let mut columns = [""; COUNT];
        let mut texts = std::str::from_utf8(line).ok()?.trim().split('\t');
        for column in &mut columns {
            *column = texts.next()?;
        }
        let text = |column: Column| columns.get(column as usize).copied().unwrap_or_default();
        let (dataset, name) = text(Column::Name).split_once('@')?;
        if texts.next().is_some() || text(Column::Type) != "snapshot" || name.contains('@') {
            return None;
        }
        let met = match &self.list {
            Some((current, met)) if **current == *dataset => Some(*met),
            _ if self.lists.contains(dataset) || !self.list_is_done(older) => return None,
            _ => None,
        };
        let begin = met.unwrap_or_default();
        let next = older.0.snapshots.get(dataset)?.0.get(begin..)?.lines().next()?;
        let Snapshot { name: same_name, creation, userrefs, written } = Snapshot::of(next)?;
        let is_same = same_name == name
            && creation == text(Column::Creation)
            && userrefs == text(Column::Userrefs)
            && written == text(Column::Written);
        if !is_same {
            return None;
        }
        let end = begin + next.len() + 1;
        match (&mut self.list, met) {
            (Some((_, met)), Some(_)) => *met = end,
            (list, _) => {
                let done = list.replace((dataset.into(), end));
                self.lists.extend(done.map(|(dataset, _)| dataset));
            }
        }
        Some(())
    }

    /// Whether all of the current dataset's snapshots were met.
    fn list_is_done(&self, older: &Datasets) -> bool {
        self.list.as_ref().is_none_or(|(dataset, met)| {
            older.0.snapshots.get(dataset).is_some_and(|list| list.0.len() == *met)
        })
    }

    /// Whether a listing that ends here says all that the older one said.
    fn is_all_of(&self, older: &Datasets) -> bool {
        let lists = older.0.snapshots.keys().filter(|dataset| !is_deep(dataset)).count();
        self.rows.len() == older.0.rows.len()
            && self.lists.len() + usize::from(self.list.is_some()) == lists
            && self.list_is_done(older)
    }
}

/// The name in a line, found without taking the rest apart.
fn name_in(line: &[u8]) -> Option<&str> {
    let name = line.split(|byte| *byte == b'\t').nth(NAME)?;
    std::str::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::line;
    use super::*;

    const MOUNTPOINTS: [&str; 4] = ["-", "/zones/f0", "/m", "/m2"];

    fn listing(picks: &[(usize, usize, usize)]) -> Vec<String> {
        let one = |(kind, name, more): &(usize, usize, usize)| match kind {
            0 | 1 => line("snapshot", &format!("zones/f{name}@{more}"), "-", "-"),
            2 => line("volume", &format!("zones/v{name}"), "-", "off"),
            3 => line("filesystem", &format!("zones/f{name}/data"), MOUNTPOINTS[*more], "off"),
            _ => line("filesystem", &format!("zones/f{name}"), MOUNTPOINTS[*more], "off"),
        };
        picks.iter().map(one).collect()
    }

    fn read(mut builder: Builder, lines: &[String]) -> Datasets {
        lines.iter().for_each(|line| builder.line(line.as_bytes()));
        builder.finish().unwrap()
    }

    fn answers_alike(one: &Datasets, other: &Datasets) -> bool {
        one == other
            && MOUNTPOINTS.iter().all(|at| one.at(at).map(Row::name) == other.at(at).map(Row::name))
    }

    fn is_the_same(one: &Datasets, other: &Datasets) -> bool {
        Arc::ptr_eq(&one.0, &other.0)
    }

    fn node() -> Vec<String> {
        let snapshot = |name: &str| line("snapshot", name, "-", "-");
        vec![
            line("filesystem", "zones/f0", "/zones/f0", "off"),
            snapshot("zones/f0@a"),
            snapshot("zones/f0@b"),
            line("filesystem", "zones/f0/data", "-", "on"),
            line("filesystem", "zones/f1", "/m", "off"),
            snapshot("zones/f1@a"),
            line("filesystem", "zones/f2", "/m", "off"),
        ]
    }

    #[test]
    fn a_listing_that_says_the_same_is_the_same_tables() {
        let first = read(Builder::default(), &node());
        assert!(is_the_same(&first, &read(Builder::after(first.clone()), &node())));
        let mut blank = node();
        blank.insert(2, String::new());
        assert!(is_the_same(&first, &read(Builder::after(first.clone()), &blank)));
        // What no listing shows stays as it is.
        let mut deep = first.clone();
        let row = Row::parse(&line("snapshot", "zones/f0/data@deep", "-", "-")).unwrap();
        deep.insert([row]);
        let again = read(Builder::after(deep.clone()), &node());
        assert!(is_the_same(&deep, &again));
        assert_eq!(again.deep_snapshots().collect::<Vec<_>>(), ["zones/f0/data"]);
    }

    #[test]
    fn any_edit_of_a_listing_shows() {
        let first = read(Builder::default(), &node());
        let mut edits = Vec::new();
        for at in 0..node().len() {
            let (mut removed, mut twice, mut changed) = (node(), node(), node());
            removed.remove(at);
            twice.push(node()[at].clone());
            changed[at] = changed[at].replace("\t15", "\t16");
            edits.extend([removed, twice, changed]);
            for other in 0..node().len() {
                // One instead of another: as many lines as before.
                let mut instead = node();
                instead[other] = node()[at].clone();
                let mut swapped = node();
                swapped.swap(at, other);
                edits.extend([instead, swapped]);
            }
        }
        for edit in edits.iter().filter(|edit| **edit != node()) {
            let want = read(Builder::default(), edit);
            let got = read(Builder::after(first.clone()), edit);
            assert!(answers_alike(&got, &want), "{edit:#?}");
            // Where a snapshot stands among datasets is no matter.
            let mut lines = [edit.clone(), node()];
            lines.iter_mut().for_each(|lines| lines.sort());
            assert!(lines[0] == lines[1] || !is_the_same(&first, &got), "{edit:#?}");
            let kept = got.get("zones/f0").zip(first.get("zones/f0"));
            let moved = edit.iter().any(|line| line.contains("\t16"));
            assert!(moved || kept.is_none_or(|(got, first)| std::ptr::eq(got, first)));
        }
    }

    #[test]
    fn a_bad_line_condemns_what_said_the_same_so_far() {
        let first = read(Builder::default(), &node());
        let mut builder = Builder::after(first);
        node().iter().for_each(|line| builder.line(line.as_bytes()));
        builder.line(line("snapshot", "a@b@c", "-", "-").as_bytes());
        let error = builder.finish().unwrap_err().to_string();
        assert!(error.starts_with("zfs: line 8: expected DATASET@SNAPSHOT"), "{error}");
    }

    proptest! {
        #[test]
        fn what_was_there_before_changes_no_answer(
            before in proptest::collection::vec((0..6usize, 0..3usize, 0..4usize), 0..20),
            now in proptest::collection::vec((0..6usize, 0..3usize, 0..4usize), 0..20),
            events in proptest::collection::vec((0..6usize, 0..3usize, 0..4usize), 0..4),
            keep in 0..20usize,
        ) {
            // A listing that begins like the one before, and what events edited in between.
            let before = listing(&before);
            let begin = before.iter().take(keep).cloned();
            let now: Vec<String> = begin.chain(listing(&now)).collect();
            let mut older = read(Builder::default(), &before);
            for line in listing(&events) {
                let row = Row::parse(&line).unwrap();
                older.expire(row.name());
                older.insert([row]);
            }
            let deep: Vec<String> = older.deep_snapshots().map(str::to_owned).collect();
            deep.iter().for_each(|name| older.drop_snapshots(name));
            for listing in [&now, &before] {
                let got = read(Builder::after(older.clone()), listing);
                prop_assert!(answers_alike(&got, &read(Builder::default(), listing)));
            }
        }
    }
}
