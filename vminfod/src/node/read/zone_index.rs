// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads /etc/zones/index.

use crate::node::ctx::Ctx;
use crate::node::root::ReadError;

/// Bytes of an index; real ones have some hundred per zone.
const CAP: u64 = 16 << 20;

/// Reads the index; empty if it does not exist.
/// Errors: it exists and cannot be read, so zoneadm alone would decide which zones are gone.
pub async fn load(ctx: &Ctx) -> Result<Vec<u8>, ReadError> {
    let path = ctx.root.zone_index();
    let place = path.display().to_string();
    let read = ctx.root.on_files(&place, move |root| root.read_file(&path, CAP)).await;
    match read.flatten() {
        Ok(content) => Ok(content.bytes),
        Err(error) if error.is_absent() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
