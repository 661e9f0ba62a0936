// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zoneadm list -p`: the zones of the node. It alone decides which VMs exist.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use super::text::is_lower_uuid;
use crate::js::to_number;
use crate::origin::{Origin, ParseError};

/// A zone that is a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRow {
    /// The zone's id; `None` unless it is active.
    pub zoneid: Option<i64>,
    /// The zone's name, which is also the name of its configuration file.
    pub zonename: Arc<str>,
    /// zoneadm's name of its state.
    pub zone_state: String,
    pub zonepath: Arc<str>,
    /// The VM's uuid. It nearly always equals the zone's name, and then shares its memory.
    pub uuid: Arc<str>,
    pub brand: String,
    /// The zone's debug id, which reboots do not change.
    pub zonedid: Option<i64>,
}

impl ZoneRow {
    /// The rank of a zone among those of one uuid, of which the greatest is shown: active ones first, then
    /// the one that has the uuid as its name, then by name.
    pub fn rank(&self) -> impl Ord + '_ {
        (self.zoneid.is_some(), self.zonename == self.uuid, Reverse(&*self.zonename))
    }
}

/// Checks that an output can be a whole listing: UTF-8, with at least the line of the global zone, and
/// each line with its end. A listing that was cut off would make VMs disappear.
pub fn check_whole(stdout: &[u8]) -> Result<(), ParseError> {
    let fault = |line: usize, what: String| {
        Err(ParseError::line(Origin::Zoneadm, u32::try_from(line).unwrap_or(u32::MAX), what))
    };
    let count = stdout.iter().filter(|byte| **byte == b'\n').count();
    match std::str::from_utf8(stdout) {
        Ok("") => Err(ParseError::content(Origin::Zoneadm, "expected a zone, found nothing")),
        Ok(text) if text.ends_with('\n') => Ok(()),
        Ok(text) => {
            let rest: String = text.lines().last().unwrap_or_default().chars().take(80).collect();
            fault(count + 1, format!("expected the end of a line after {rest:?}"))
        }
        Err(e) => {
            let before = stdout.get(..e.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            fault(line, "expected UTF-8".to_owned())
        }
    }
}

/// Returns the names of all zones that have a readable row, VMs or not.
pub fn names(bytes: &[u8]) -> HashSet<String> {
    let lines = bytes.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    lines.filter_map(|line| Some(fields(line.trim_end())?[1].clone().into_owned())).collect()
}

/// Returns the rows of a listing. Leaves out lines that are no rows and zones that are no VMs; the
/// later of two rows of one zone counts.
pub fn parse(bytes: &[u8]) -> Vec<ZoneRow> {
    let mut rows: indexmap::IndexMap<Arc<str>, ZoneRow> = indexmap::IndexMap::new();
    for line in bytes.split(|byte| *byte == b'\n').map(String::from_utf8_lossy) {
        if let Some(row) = row(line.trim_end()) {
            rows.insert(Arc::clone(&row.zonename), row);
        }
    }
    rows.into_values().collect()
}

fn row(line: &str) -> Option<ZoneRow> {
    let [zoneid, zonename, zone_state, zonepath, uuid, brand, _ip_type, zonedid] = fields(line)?;
    if zonename == "global" {
        return None;
    }
    let zonename: Arc<str> = zonename.into();
    let uuid = if uuid.chars().count() == 36 {
        if *uuid == *zonename { Arc::clone(&zonename) } else { uuid.into() }
    } else if is_lower_uuid(&zonename) {
        Arc::clone(&zonename)
    } else {
        return None;
    };
    let (zoneid, zonedid) = (id(&zoneid), id(&zonedid));
    let (zone_state, brand) = (zone_state.into_owned(), brand.into_owned());
    Some(ZoneRow { zoneid, zonename, zone_state, zonepath: zonepath.into(), uuid, brand, zonedid })
}

/// Returns the first eight columns of a line. A later platform may append columns; a colon in a path
/// is no added column: zoneadm prints a backslash before it, and the fifth column is a uuid or empty.
fn fields(line: &str) -> Option<[Cow<'_, str>; 8]> {
    let mut columns = [const { Cow::Borrowed("") }; 8];
    let (mut slots, mut rest) = (columns.iter_mut(), Some(line));
    while let Some(line) = rest {
        let mut end = line.find(':');
        while let Some(at) = end.filter(|at| line.get(..*at).is_some_and(|it| it.ends_with('\\'))) {
            let after = line.get(at + 1..).unwrap_or_default();
            end = after.find(':').map(|next| at + 1 + next);
        }
        let column = end.and_then(|end| line.get(..end)).unwrap_or(line);
        let Some(slot) = slots.next() else { break };
        *slot = match column.contains("\\:") {
            true => column.replace("\\:", ":").into(),
            false => column.into(),
        };
        rest = end.and_then(|end| line.get(end + 1..));
    }
    let is_whole = slots.next().is_none();
    let is_appended = rest.is_some();
    let uuid = &columns[4];
    let is_uuid = uuid.is_empty() || uuid.chars().count() == 36;
    (is_whole && (!is_appended || is_uuid)).then_some(columns)
}

fn id(text: &str) -> Option<i64> {
    Some(to_number(text)).filter(|n| n.is_finite()).map(|n| n as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    #[test]
    fn reads_rows() {
        let text = format!(
            "0:global:running:/::liveimg:shared:0\n-:{U}:installed:/zones/{U}:{U}:kvm:excl:7  \n\nsix:of:8\n\
             1:alpha:ready:/zones/alpha:{U}:lx:excl:-\n2:alpha:running:/zones/alpha:{U}:lx:excl:-\n\
             3:beta:ready:/b::lx:excl:1\n4:c:ready:/zones/a:b:{U}:lx:excl:1"
        );
        let rows = parse(text.as_bytes());
        let names: Vec<&str> = rows.iter().map(|row| &*row.zonename).collect();
        assert_eq!(names, [U, "alpha"], "the later of two rows of one zone");
        assert_eq!((rows[1].zoneid, rows[1].zonedid), (Some(2), None));
    }

    #[test] // F77
    fn active_zone_ranks_first_then_the_one_named_like_its_uuid() {
        let text = [(2, "b"), (3, "a"), (0, "d"), (0, "c"), (0, U)].map(|(zoneid, name)| {
            let zoneid = if zoneid == 0 { "-".to_owned() } else { zoneid.to_string() };
            format!("{zoneid}:{name}:installed:/z:{U}:lx:excl:1\n")
        });
        let mut rows = parse(text.concat().as_bytes());
        rows.sort_by(|a, b| b.rank().cmp(&a.rank()));
        let names: Vec<&str> = rows.iter().map(|row| &*row.zonename).collect();
        assert_eq!(names, ["a", "b", U, "c", "d"]);
    }

    #[test]
    fn uuid_falls_back_to_the_name() {
        let rows = parse(format!("-:{U}:configured:/z::lx:excl:").as_bytes());
        assert_eq!(&*rows[0].uuid, U);
        assert!(Arc::ptr_eq(&rows[0].uuid, &rows[0].zonename));
        assert_eq!((rows[0].zoneid, rows[0].zonedid), (None, Some(0)));
        assert!(parse(format!("0:global:running:/:{U}:liveimg:shared:0\n").as_bytes()).is_empty());
    }

    #[test]
    fn an_escaped_colon_belongs_to_the_path() {
        let rows = parse(format!("-:{U}:installed:/zones/a\\:b:{U}:lx:excl:1\n").as_bytes());
        assert_eq!(&*rows[0].zonepath, "/zones/a:b");
    }

    #[test]
    fn a_line_has_eight_columns() {
        let columns = ["a", "b:c", ":", "d\\e", "", "f", "g", "h"].map(Cow::from);
        assert_eq!(fields("a:b\\:c:\\::d\\e::f:g:h"), Some(columns));
        // A later platform appends columns; a colon in a path does not.
        let row = format!("1:z:running:/z:{U}:lx:excl:4");
        let columns = fields(&row).unwrap();
        for appended in [":", ":new", ":a:b\\:c"] {
            assert_eq!(fields(&format!("{row}{appended}")), Some(columns.clone()));
        }
        assert!(names(format!("{row}:new\n0:global:running:/::x:y:0:\n").as_bytes()).len() == 2);
        for line in ["", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7\\:8"] {
            assert_eq!(fields(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }
    }
}
