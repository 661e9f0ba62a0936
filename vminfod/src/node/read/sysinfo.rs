// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads /tmp/.sysinfo.json.

use vm_model::origin::Origin;
use vm_model::parse::sysinfo::{Sysinfo, parse};

use crate::node::ctx::Ctx;
use crate::node::error::{Fault, LoadError};

const CAP: u64 = 4 * 1024 * 1024;

/// Reads the description of the node.
/// Errors: the file cannot be read, does not exist or is no JSON object.
pub async fn load(ctx: &Ctx) -> Result<Sysinfo, LoadError> {
    let read = ctx.root.on_files("/tmp/.sysinfo.json", |root| {
        let path = root.sysinfo();
        match root.read_file(&path, CAP) {
            Ok(content) => parse(&content.bytes).map_err(LoadError::from),
            Err(e) if e.is_absent() => Err(LoadError::new(Origin::Sysinfo, Fault::Absent)),
            Err(e) => Err(LoadError::new(Origin::Sysinfo, Fault::Read(e))),
        }
        .map_err(|error| error.in_file(path))
    });
    read.await.map_err(|e| LoadError::new(Origin::Sysinfo, Fault::Read(e)))?
}
