// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! zoneadm's list: which zones there are, their state, and where they live. It alone decides which
//! VMs exist.

use super::{Ctx, Fault, LoadError, Origin, is_lower_uuid, lines};
use crate::commands::{Output, Tool};
use crate::vm::convert::to_number;

/// One zone that is a VM, as zoneadm sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRow {
    /// The kernel's id; `None` unless the zone is active.
    pub zoneid: Option<i64>,
    /// The zone's name; also names its configuration file.
    pub zonename: String,
    /// zoneadm's word for its state.
    pub zone_state: String,
    /// Its directory.
    pub zonepath: String,
    /// The VM's uuid.
    pub uuid: String,
    /// Its brand.
    pub brand: String,
    /// The id that stays over reboots.
    pub zonedid: Option<i64>,
}

/// All zones that are VMs.
pub async fn list(ctx: &Ctx) -> Result<Vec<ZoneRow>, LoadError> {
    let args = ["list", "-p", "-c"].map(String::from).to_vec();
    let output = ctx.run(Origin::Zoneadm, Tool::Zoneadm, args, ctx.deadlines.zoneadm).await?;
    if output.status != 0 {
        return Err(failed(&output));
    }
    whole(&output.stdout)?;
    Ok(parse(&output.stdout))
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
        return Ok(parse(&output.stdout).into_iter().find(|row| row.zonename == zonename));
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
    let mut rows: indexmap::IndexMap<String, ZoneRow> = indexmap::IndexMap::new();
    for line in lines(bytes) {
        if let Some(row) = row(line.trim_end()) {
            rows.insert(row.uuid.clone(), row);
        }
    }
    rows.into_values().collect()
}

fn row(line: &str) -> Option<ZoneRow> {
    let [zoneid, zonename, zone_state, zonepath, uuid, brand, _ip_type, zonedid] =
        <[String; 8]>::try_from(fields(line)).ok()?;
    if zonename == "global" {
        return None;
    }
    let uuid = if uuid.chars().count() == 36 {
        uuid
    } else if is_lower_uuid(&zonename) {
        zonename.clone()
    } else {
        tracing::info!(zonename, "a zone without a uuid is not a VM");
        return None;
    };
    let (zoneid, zonedid) = (id(&zoneid), id(&zonedid));
    Some(ZoneRow { zoneid, zonename, zone_state, zonepath, uuid, brand, zonedid })
}

/// Splits at colons. zoneadm writes a backslash before a colon that belongs to a path.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, fields.last_mut()) {
            (':', _) => fields.push(String::new()),
            ('\\', Some(field)) if chars.next_if_eq(&':').is_some() => field.push(':'),
            (c, Some(field)) => field.push(c),
            (_, None) => {}
        }
    }
    fields
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
             2:alpha:running:/zones/alpha:{U}:lx:excl:-\n3:beta:ready:/b::lx:excl:1\n4:c:ready:/zones/a:b:{U}:lx:excl:1"
        );
        let rows = parse(text.as_bytes());
        assert_eq!(rows.len(), 1, "the later of two rows with one uuid: {rows:?}");
        assert_eq!(rows[0].zonename, "alpha");
        assert_eq!((rows[0].zoneid, rows[0].zonedid), (Some(2), None));
    }

    #[test]
    fn uuid_falls_back_to_the_name() {
        let rows = parse(format!("-:{U}:configured:/z::lx:excl:").as_bytes());
        assert_eq!(rows[0].uuid, U);
        assert_eq!((rows[0].zoneid, rows[0].zonedid), (None, Some(0)));
        assert!(parse(format!("0:global:running:/:{U}:liveimg:shared:0\n").as_bytes()).is_empty());
    }

    #[test]
    fn an_escaped_colon_belongs_to_the_path() {
        let rows = parse(format!("-:{U}:installed:/zones/a\\:b:{U}:lx:excl:1\n").as_bytes());
        assert_eq!(rows[0].zonepath, "/zones/a:b");
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }
    }
}
