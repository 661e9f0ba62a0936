// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs `zoneadm list`, for one zone or for all.

use std::collections::HashSet;
use std::sync::Arc;

use daemon::command::{Call, Program};
use vm_model::origin::Origin;
use vm_model::parse::zoneadm::{ZoneRow, check_whole, names, parse};

use crate::node::ctx::Ctx;
use crate::node::error::LoadError;

/// What zoneadm lists.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The zones that are VMs, in zoneadm's order.
    pub rows: Vec<Arc<ZoneRow>>,
    /// All zones that have a readable row, VMs or not.
    pub names: HashSet<String>,
}

/// Lists all zones.
/// Errors: zoneadm fails, or prints what cannot be a whole listing.
pub async fn list(ctx: &Ctx) -> Result<Listing, LoadError> {
    let args = ["list", "-p", "-c"].map(String::from).to_vec();
    let call = Call::new(Program::Zoneadm, args, ctx.deadlines.zoneadm);
    let output = ctx.run(Origin::Zoneadm, call).await?;
    if output.status != 0 {
        return Err(LoadError::exit(Origin::Zoneadm, &output));
    }
    check_whole(&output.stdout)?;
    let rows = parse(&output.stdout).into_iter().map(Arc::new).collect();
    Ok(Listing { rows, names: names(&output.stdout) })
}

/// Lists one zone; `None` if no such zone is configured, or it is not a VM.
/// Errors: zoneadm fails, or prints what cannot be a whole listing.
pub async fn one(
    ctx: &Ctx,
    zonename: &str,
    uuid: Option<&str>,
) -> Result<Option<ZoneRow>, LoadError> {
    // By zoneadm(8), the zone of the uuid is shown instead of the one of the name, if there is one: another zone may
    // have the same uuid.
    let mut of_uuid = uuid;
    loop {
        let mut args = vec!["-z".to_owned(), zonename.to_owned()];
        args.extend(of_uuid.into_iter().flat_map(|uuid| ["-u".to_owned(), uuid.to_owned()]));
        args.extend(["list", "-p"].map(String::from));
        let call = Call::new(Program::Zoneadm, args, ctx.deadlines.zoneadm);
        let output = ctx.run(Origin::Zoneadm, call).await?;
        if output.status == 0 {
            check_whole(&output.stdout)?;
            let row = parse(&output.stdout).into_iter().find(|row| *row.zonename == *zonename);
            if row.is_some() || of_uuid.take().is_none() {
                return Ok(row);
            }
            continue;
        }
        // The text of zoneadm(8) for a zone that does not exist; recorded.
        if output.complaint().ends_with("No such zone configured") {
            return Ok(None);
        }
        return Err(LoadError::exit(Origin::Zoneadm, &output));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::scripted;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    #[tokio::test]
    async fn partial_listing_is_an_error() {
        let (dir, ctx) = scripted::node(
            Program::Zoneadm,
            "cat \"${0%/*}/list\"; exit $(cat \"${0%/*}/status\")",
        );
        let says = |text: &str, status: u8| {
            std::fs::write(dir.path().join("list"), text).unwrap();
            std::fs::write(dir.path().join("status"), status.to_string()).unwrap();
        };
        let good = format!("-:{U}:installed:/zones/{U}:{U}:lx:excl:1\n");
        says(&good, 0);
        assert_eq!(list(&ctx).await.unwrap().rows.len(), 1);
        for (text, status) in [(&*good, 1), (good.trim_end(), 0), ("", 0), ("\u{e9}", 0)] {
            says(text, status);
            assert!(list(&ctx).await.is_err(), "{text:?} {status}");
            assert!(one(&ctx, U, None).await.is_err(), "{text:?} {status}");
        }
    }
}
