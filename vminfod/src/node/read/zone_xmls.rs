// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which zones have a configuration in `/etc/zones`, whatever zoneadm and the zone index say of them. zonecfg
//! removes the XML of a zone with its line in the index: one that is left shows that the zone is not gone.

use std::path::Path;

use vm_model::parse::text::is_lower_uuid;

use crate::node::ctx::Ctx;
use crate::node::root::ReadError;

/// The most entries that are read of the directory; more can only be garbage.
const ENTRIES_CAP: usize = 50_000;

/// Returns true if this zone has an XML.
/// Errors: its file system fails or does not answer.
pub async fn has(ctx: &Ctx, zonename: &str) -> Result<bool, ReadError> {
    let path = ctx.root.zone_xml(zonename);
    let place = path.display().to_string();
    let look = ctx.root.on_files(&place, move |root| root.lstat(&path)).await;
    match look.flatten() {
        Ok(_) => Ok(true),
        Err(error) if error.is_absent() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the zones that have an XML and are named by a uuid. Others may be templates.
/// Errors: the directory cannot be read.
pub async fn uuids(ctx: &Ctx) -> Result<Vec<String>, ReadError> {
    let dir = ctx.root.path("/etc/zones");
    let place = dir.display().to_string();
    let list = ctx.root.on_files(&place, move |_| names(&dir)).await;
    match list.flatten() {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        list => list,
    }
}

fn names(dir: &Path) -> Result<Vec<String>, ReadError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(ReadError::io)?.take(ENTRIES_CAP) {
        let file = entry.map_err(ReadError::io)?.file_name();
        let zone = file.to_str().and_then(|name| name.strip_suffix(".xml"));
        names.extend(zone.filter(|zone| is_lower_uuid(zone)).map(str::to_owned));
    }
    Ok(names)
}
