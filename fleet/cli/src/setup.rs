// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `setup`: makes the streams. Servers that were just started have no leader yet, or do not see each other yet: that is
//! waited for.

use std::time::Duration;

use sdc_clients::fleet::{Fleet, FleetError, Made, Shape, VMS, again, make};
use tokio::time::{Instant, sleep};

/// How long it is waited: an election takes 4 to 9 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts.
const EVERY: Duration = Duration::from_secs(1);

/// Makes what is missing, or `VMS` again. Returns what was done, a line for each stream.
pub(crate) async fn setup(
    fleet: &Fleet,
    shape: &Shape,
    vms_again: bool,
) -> Result<String, FleetError> {
    let end = Instant::now() + PATIENCE;
    let mut said = false;
    loop {
        let error = match attempt(fleet, shape, vms_again).await {
            Ok(done) => return Ok(done),
            Err(error) => fleet.explain(error),
        };
        if !error.may_pass() || Instant::now() >= end {
            return Err(error);
        }
        if !std::mem::replace(&mut said, true) {
            let most = PATIENCE.as_secs();
            eprintln!("sdc-fleet: waiting up to {most} s for the servers: {error}");
        }
        sleep(EVERY).await;
    }
}

async fn attempt(fleet: &Fleet, shape: &Shape, vms_again: bool) -> Result<String, FleetError> {
    if vms_again {
        again(fleet.jetstream(), shape).await?;
        return Ok(format!("{VMS}: {}\n", Made::Again));
    }
    let done = make(fleet.jetstream(), shape).await?;
    Ok(done.iter().map(|(stream, made)| format!("{stream}: {made}\n")).collect())
}
