// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs the kstat reader, for one zone or for all.

use std::collections::HashMap;

use daemon::command::{Call, Program};
use vm_model::origin::Origin;
use vm_model::parse::kstat::{ZoneKstat, find, parse};
use vm_model::parse::zoneadm::ZoneRow;

use crate::node::ctx::Ctx;
use crate::node::error::LoadError;

/// The kstats of all zones whose name is a uuid.
/// Errors: the reader fails, or prints no array of kstats.
pub async fn node(ctx: &Ctx) -> Result<HashMap<String, ZoneKstat>, LoadError> {
    Ok(parse(&printed(ctx, Vec::new()).await?)?)
}

/// The kstat of one zone; `None` unless the zone is active. The reader may ignore its operand and print
/// all zones.
/// Errors: the reader fails, or prints no array of kstats.
pub async fn one(ctx: &Ctx, row: &ZoneRow) -> Result<Option<ZoneKstat>, LoadError> {
    let Some(zoneid) = row.zoneid else { return Ok(None) };
    Ok(find(&printed(ctx, vec![zoneid.to_string()]).await?, &row.uuid)?)
}

async fn printed(ctx: &Ctx, args: Vec<String>) -> Result<Vec<u8>, LoadError> {
    let call = Call::new(Program::Kstat, args, ctx.deadlines.kstat);
    let output = ctx.run(Origin::Kstat, call).await?;
    if output.status == 0 {
        Ok(output.stdout)
    } else {
        Err(LoadError::exit(Origin::Kstat, &output))
    }
}
