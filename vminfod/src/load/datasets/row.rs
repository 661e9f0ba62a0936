// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One line of a listing as it is kept: nearly half of what zfs prints of a dataset are the same few
//! texts, and its name a second time.

use std::borrow::Cow;

use super::{COLUMNS, COUNT, Column, DEVICES, NAME, number};

/// Columns that are kept as one byte, 1 and those after it: none of them can begin a column of its
/// own, since a line in which one occurs is kept as it is.
const TEXTS: [&str; 5] = ["18446744073709551615", "filesystem", "volume", "131072", "lz4"];
/// A name that is the mountpoint before it without its slash.
const MOUNTED: u8 = TEXTS.len() as u8 + 1;
/// The first byte of a line that is kept as it is.
const PLAIN: u8 = MOUNTED + 1;

const MOUNTPOINT: usize = Column::Mountpoint as usize;

/// One line of a listing.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    kept: Box<str>,
    /// Where its name stands: it is asked for at every step.
    name: (u32, u32),
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Row({:?})", self.line())
    }
}

impl Row {
    /// A row of a line with exactly 17 columns.
    pub fn parse(line: &str) -> Option<Row> {
        let line = line.trim();
        if line.bytes().filter(|byte| *byte == b'\t').count() + 1 != COUNT {
            return None;
        }
        let mut kept = String::with_capacity(line.len() + 1);
        let is_plain = line.bytes().any(|byte| (1..=PLAIN).contains(&byte));
        kept.extend(is_plain.then_some(char::from(PLAIN)));
        let (mut name, mut mountpoint) = ((0, 0), (0, ""));
        for (at, text) in line.split('\t').enumerate() {
            kept.extend((at > 0).then_some('\t'));
            let begin = kept.len();
            let code = TEXTS.iter().position(|usual| *usual == text).filter(|_| !is_plain);
            match (at, code) {
                (NAME, _) if !is_plain && mountpoint.1.strip_prefix('/') == Some(text) => {
                    kept.push(char::from(MOUNTED));
                    name = (mountpoint.0 + 1, mountpoint.0 + 1 + text.len());
                    continue;
                }
                // A name must be there to be pointed at.
                (NAME, _) | (_, None) => kept.push_str(text),
                (_, Some(code)) => kept.push(char::from(code as u8 + 1)),
            }
            match at {
                MOUNTPOINT if code.is_none() => mountpoint = (begin, text),
                NAME => name = (begin, kept.len()),
                _ => {}
            }
        }
        let name = (u32::try_from(name.0).ok()?, u32::try_from(name.1).ok()?);
        Some(Row { kept: kept.as_str().into(), name })
    }

    /// A column as printed.
    pub fn text(&self, column: Column) -> &str {
        self.shown(column as usize)
    }

    fn shown(&self, column: usize) -> &str {
        if column == NAME {
            return self.name();
        }
        let tab = |byte: &u8| *byte == b'\t';
        let columns = self.columns_kept();
        // From the nearer end.
        let found = if column <= COUNT / 2 {
            columns.split(tab).nth(column)
        } else {
            columns.rsplit(tab).nth(COUNT - 1 - column)
        };
        match found {
            Some([code]) if !self.is_plain() && (1..MOUNTED).contains(code) => usual(*code),
            // Between tabs of a text stand texts.
            Some(text) => std::str::from_utf8(text).unwrap_or_default(),
            None => "",
        }
    }

    fn is_plain(&self) -> bool {
        self.kept.as_bytes().first() == Some(&PLAIN)
    }

    fn columns_kept(&self) -> &[u8] {
        self.kept.as_bytes().get(usize::from(self.is_plain())..).unwrap_or_default()
    }

    /// All columns by the names zfs has for them, as printed.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        COLUMNS.split(',').zip((0..COUNT).map(|column| self.shown(column)))
    }

    /// The line as it was printed.
    pub fn line(&self) -> String {
        let columns: Vec<&str> = self.columns().map(|(_, text)| text).collect();
        columns.join("\t")
    }

    /// A column as a number; `None` for a lone `-`.
    pub fn number(&self, column: Column) -> Option<f64> {
        number(self.text(column))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        let (from, to) = self.name;
        self.kept.get(from as usize..to as usize).unwrap_or_default()
    }

    /// How many bytes are kept of it.
    pub(super) fn bytes(&self) -> usize {
        self.kept.len()
    }

    /// Whether it was parsed of exactly this line.
    pub(super) fn is_of(&self, line: &[u8]) -> bool {
        if self.is_plain() {
            return self.columns_kept() == line;
        }
        let mut rest = line;
        for kept in self.kept.as_bytes().split_inclusive(|byte| *byte == b'\t') {
            let (kept, tab) = kept.strip_suffix(b"\t").map_or((kept, &b""[..]), |it| (it, b"\t"));
            let text = match kept {
                [MOUNTED] => self.name().as_bytes(),
                [code] if (1..MOUNTED).contains(code) => usual(*code).as_bytes(),
                text => text,
            };
            let after = rest.strip_prefix(text).and_then(|rest| rest.strip_prefix(tab));
            match after {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }

    pub(super) fn is_snapshot(&self) -> bool {
        self.text(Column::Type) == "snapshot"
    }

    /// Where it is found: volumes by their device.
    pub(super) fn mountpoint(&self) -> Option<Cow<'_, str>> {
        let name = self.name();
        let mountpoint = match (self.text(Column::Type), self.text(Column::Mountpoint)) {
            ("volume", _) => Cow::Owned(format!("{DEVICES}{name}")),
            (_, "-" | "legacy") => Cow::Owned(format!("/{name}")),
            (_, text) => Cow::Borrowed(text),
        };
        let delegated = self.text(Column::Zoned) == "on" || name.split('/').nth(2) == Some("data");
        (mountpoint.starts_with('/') && !delegated).then_some(mountpoint)
    }
}

fn usual(code: u8) -> &'static str {
    TEXTS.get(usize::from(code).wrapping_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "lz4\t1750001486\t18446744073709551615\t/zones/a\tzones/a\t21474836480\t131072\t0\t0\t18446744073709551615\tfilesystem\t0\t-\t-\t-\t131072\toff";

    fn again(line: &str) -> Row {
        let row = Row::parse(line).unwrap();
        assert_eq!(row.line(), line);
        assert!(row.is_of(line.as_bytes()), "{line:?}");
        let columns: Vec<&str> = line.split('\t').collect();
        for (at, text) in columns.iter().enumerate() {
            assert_eq!(row.shown(at), *text, "{at} of {line:?}");
            let mut other = columns.clone();
            let edited = format!("{text}0");
            other[at] = &edited;
            assert!(!row.is_of(other.join("\t").as_bytes()), "{at} of {line:?}");
        }
        assert_eq!(row.name(), columns[NAME]);
        assert!(!row.is_of(&line.as_bytes()[..line.len() - 1]));
        assert!(!row.is_of(format!("{line}\t").as_bytes()));
        row
    }

    #[test]
    fn a_line_comes_out_as_it_was() {
        assert!(again(LINE).bytes() < LINE.len() / 2 + 10);
        again(&LINE.replace("/zones/a", "-"));
        again(&LINE.replace("/zones/a", "zones/a"));
        again(&LINE.replace("zones/a", "lz4"));
        again(&LINE.replace("\tzones/a", "\tfilesystem").replace("/zones/a", "filesystem"));
        // Whatever bytes a mountpoint has.
        for odd in ["\u{1}", "\u{6}", "\u{7}", "\u{8}", "\u{1f980}", "/zones/a\u{2}"] {
            again(&LINE.replace("/zones/a", odd));
        }
        assert!(Row::parse(&LINE.replace("lz4\t", "")).is_none());
        assert!(Row::parse(&format!("{LINE}\t-")).is_none());
    }

    proptest! {
        #[test]
        fn any_line_comes_out(columns in proptest::collection::vec("[a/\u{1}-\u{8}\u{e9}-]{1,3}|lz4|volume|131072|/lz4|18446744073709551615", COUNT)) {
            let line = columns.join("\t");
            prop_assume!(line.trim() == line);
            again(&line);
        }
    }
}
