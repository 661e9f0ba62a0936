// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! zoneadm's list: which zones there are, their state, and where they live. It alone decides which
//! VMs exist.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use super::{Ctx, Fault, LoadError, Origin, is_lower_uuid, lines};
use crate::commands::{Output, Tool};
use crate::vm::convert::to_number;
use crate::word::{Word, word};

/// One zone that is a VM, as zoneadm sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRow {
    /// The kernel's id; `None` unless the zone is active.
    pub zoneid: Option<i64>,
    /// The zone's name; also names its configuration file. Whoever keeps names shares this one.
    pub zonename: Arc<str>,
    /// zoneadm's word for its state.
    pub zone_state: Word,
    /// Its directory.
    pub zonepath: Arc<str>,
    /// The VM's uuid: nearly always the zone's name, and then the same text in memory.
    pub uuid: Arc<str>,
    /// Its brand.
    pub brand: Word,
    /// The id that stays over reboots.
    pub zonedid: Option<i64>,
}

/// All zones that are VMs, in zoneadm's order.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    rows: Vec<Arc<ZoneRow>>,
    /// Of the text that they were read of; `None`: of none.
    digest: Option<(usize, u64)>,
    /// Two rows have one name, as zoneadm never prints them.
    ambiguous: bool,
}

impl Deref for Listed {
    type Target = [Arc<ZoneRow>];

    fn deref(&self) -> &[Arc<ZoneRow>] {
        &self.rows
    }
}

impl Listed {
    /// The same with these in place of equal ones, so that no row is kept twice.
    pub fn sharing<'a>(&self, known: impl Fn(&str) -> Option<&'a Arc<ZoneRow>>) -> Listed {
        let share = |row: &Arc<ZoneRow>| match known(&row.zonename) {
            Some(known) if **known == **row => Arc::clone(known),
            _ => Arc::clone(row),
        };
        Listed {
            rows: self.rows.iter().map(share).collect(),
            digest: self.digest,
            ambiguous: self.ambiguous,
        }
    }

    /// Whether some of these names is not listed, where `listed` of them are.
    pub fn lacks_some(&self, listed: usize, names: usize) -> bool {
        self.ambiguous || listed != names
    }
}

/// Whoever could choose a text must not be able to choose its digest.
static DIGESTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Lists all zones.
pub async fn list(ctx: &Ctx) -> Result<Vec<Arc<ZoneRow>>, LoadError> {
    Ok(list_after(ctx, &Arc::default()).await?.to_vec())
}

/// The same where most is known: the very list that is given if zoneadm says what it said then.
pub async fn list_after(ctx: &Ctx, older: &Arc<Listed>) -> Result<Arc<Listed>, LoadError> {
    let args = ["list", "-p", "-c"].map(String::from).to_vec();
    let output = ctx.run(Origin::Zoneadm, Tool::Zoneadm, args, ctx.deadlines.zoneadm).await?;
    if output.status != 0 {
        return Err(failed(&output));
    }
    let digest = Some((output.stdout.len(), DIGESTS.hash_one(&output.stdout)));
    if older.digest == digest {
        return Ok(Arc::clone(older));
    }
    whole(&output.stdout)?;
    let parsed = parse(&output.stdout);
    // Not collected in place: what is kept would keep all the room that the rows had.
    let mut rows: Vec<Arc<ZoneRow>> = Vec::with_capacity(parsed.len());
    rows.extend(parsed.into_iter().map(Arc::new));
    let mut names = HashSet::with_capacity(rows.len());
    let ambiguous = !rows.iter().all(|row| names.insert(&*row.zonename));
    Ok(Arc::new(Listed { rows, digest, ambiguous }))
}

/// One zone; `None` if no such zone is configured (or it is no VM).
pub async fn one(
    ctx: &Ctx,
    zonename: &str,
    uuid: Option<&str>,
) -> Result<Option<ZoneRow>, LoadError> {
    let mut args = vec!["-z".to_owned(), zonename.to_owned()];
    if let Some(uuid) = uuid {
        args.extend(["-u".to_owned(), uuid.to_owned()]);
    }
    args.extend(["list", "-p"].map(String::from));
    let output = ctx.run(Origin::Zoneadm, Tool::Zoneadm, args, ctx.deadlines.zoneadm).await?;
    if output.status == 0 {
        whole(&output.stdout)?;
        return Ok(parse(&output.stdout).into_iter().find(|row| *row.zonename == *zonename));
    }
    if output.complaint().ends_with("No such zone configured") {
        Ok(None)
    } else {
        Err(failed(&output))
    }
}

fn failed(output: &Output) -> LoadError {
    let fault = Fault::Exit { status: output.status, complaint: output.complaint() };
    LoadError::new(Origin::Zoneadm, fault)
}

/// Whether this can be all that zoneadm had to say. It prints at least one line, the global zone's
/// in a list, each with its end, in ASCII: a listing that is none of that would make VMs vanish.
fn whole(stdout: &[u8]) -> Result<(), LoadError> {
    let fault = |line: usize, what: String| {
        Err(LoadError::line(Origin::Zoneadm, u32::try_from(line).unwrap_or(u32::MAX), what))
    };
    let count = stdout.iter().filter(|byte| **byte == b'\n').count();
    match std::str::from_utf8(stdout) {
        Ok("") => Err(LoadError::content(Origin::Zoneadm, "expected a zone, found nothing")),
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

/// The rows of a listing. Lines that are no rows and zones that are no VMs are left out; of two
/// lines with one uuid the later counts.
pub fn parse(bytes: &[u8]) -> Vec<ZoneRow> {
    let mut rows: indexmap::IndexMap<Arc<str>, ZoneRow> = indexmap::IndexMap::new();
    for line in lines(bytes) {
        if let Some(row) = row(line.trim_end()) {
            rows.insert(Arc::clone(&row.uuid), row);
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
        tracing::info!(zonename = &*zonename, "a zone without a uuid is not a VM");
        return None;
    };
    let (zoneid, zonedid) = (id(&zoneid), id(&zonedid));
    let (zone_state, brand) = (word(&zone_state), word(&brand));
    Some(ZoneRow { zoneid, zonename, zone_state, zonepath: zonepath.into(), uuid, brand, zonedid })
}

/// The columns of a line with exactly eight of them, split at colons. zoneadm writes a backslash
/// before a colon that belongs to a path.
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
        *slots.next()? = match column.contains("\\:") {
            true => column.replace("\\:", ":").into(),
            false => column.into(),
        };
        rest = end.and_then(|end| line.get(end + 1..));
    }
    slots.next().is_none().then_some(columns)
}

fn id(text: &str) -> Option<i64> {
    Some(to_number(text)).filter(|n| n.is_finite()).map(|n| n as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::scripted;
    use proptest::prelude::*;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    #[test]
    fn reads_rows() {
        let text = format!(
            "0:global:running:/::liveimg:shared:0\n-:{U}:installed:/zones/{U}:{U}:kvm:excl:7  \n\nsix:of:8\n\
             2:alpha:running:/zones/alpha:{U}:lx:excl:-\n3:beta:ready:/b::lx:excl:1\n4:c:ready:/zones/a:b:{U}:lx:excl:1"
        );
        let rows = parse(text.as_bytes());
        assert_eq!(rows.len(), 1, "the later of two rows with one uuid: {rows:?}");
        assert_eq!(&*rows[0].zonename, "alpha");
        assert_eq!((rows[0].zoneid, rows[0].zonedid), (Some(2), None));
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
        assert_eq!(
            fields("a:b\\:c:\\::d\\e::f:g:h"),
            Some(["a", "b:c", ":", "d\\e", "", "f", "g", "h"].map(Cow::from))
        );
        for line in ["", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7\\:8"] {
            assert_eq!(fields(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn a_list_is_the_one_before_only_if_it_says_the_same_and_is_whole() {
        let (dir, ctx) =
            scripted::node(Tool::Zoneadm, "cat \"${0%/*}/list\"; exit $(cat \"${0%/*}/status\")");
        let other = U.replace('f', "e");
        let line =
            |name: &str, state: &str| format!("-:{name}:{state}:/zones/{name}:{name}:lx:excl:1\n");
        let says = |text: &str, status: u8| {
            std::fs::write(dir.path().join("list"), text).unwrap();
            std::fs::write(dir.path().join("status"), status.to_string()).unwrap();
        };
        let good = line(U, "installed") + &line(&other, "running");
        says(&good, 0);
        let first = list_after(&ctx, &Arc::default()).await.unwrap();
        let again = list_after(&ctx, &first).await.unwrap();
        assert!(Arc::ptr_eq(&first, &again) && first.len() == 2);
        let shared = first.sharing(|name| first.iter().find(|row| *row.zonename == *name));
        assert!(Arc::ptr_eq(&shared[1], &first[1]));
        assert!(Arc::ptr_eq(&list_after(&ctx, &Arc::new(shared)).await.unwrap()[0], &first[0]));
        // As long as before, and yet another.
        says(&good.replace("excl:1", "excl:2"), 0);
        let changed = list_after(&ctx, &first).await.unwrap();
        assert_eq!((changed.len(), changed[0].zonedid), (2, Some(2)));
        says(&(line(&other, "running") + &line(U, "installed")), 0);
        let swapped = list_after(&ctx, &first).await.unwrap();
        assert_eq!(*swapped[0], *first[1]);
        // Nothing that was known makes a failure or half a list good.
        says(&good, 1);
        assert!(list_after(&ctx, &first).await.is_err());
        says(good.trim_end(), 0);
        assert!(list_after(&ctx, &first).await.is_err());
        says("", 0);
        assert!(list_after(&ctx, &first).await.is_err() && list(&ctx).await.is_err());
    }

    #[tokio::test]
    async fn who_is_missing_is_told_by_counting_only_where_no_name_is_there_twice() {
        let row = |uuid: &str| format!("-:twice:installed:/zones/a:{uuid}:lx:excl:1\n");
        let (_dir, ctx) = scripted::node(
            Tool::Zoneadm,
            &format!("printf '%s' '{}{}'", row(U), row(&U.replace('f', "e"))),
        );
        let listed = list_after(&ctx, &Arc::default()).await.unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed.lacks_some(2, 2), "one of two may be another one");
        assert!(Listed::default().lacks_some(1, 2) && !Listed::default().lacks_some(2, 2));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }
    }
}
