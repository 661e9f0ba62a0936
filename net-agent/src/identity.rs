// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The identity task: reads sysinfo until it names this node, then at each comparison interval, in
//! case it changes.

use std::sync::Arc;
use std::time::Duration;

use daemon::Window;
use daemon::timing::policy;
use sdc_clients::retry::Backoff;

use crate::parts::Parts;
use crate::plan::Refusal;
use crate::status::{State, Task};
use crate::view::Identity;

/// The first wait after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Why sysinfo does not say who the node is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unidentified {
    /// vminfod did not answer.
    #[error("vminfod's /sysinfo")]
    NoAnswer(#[from] sdc_clients::Error),
    /// It has no uuid.
    #[error(transparent)]
    NoUuid(#[from] crate::view::NoUuid),
}

/// Reads sysinfo now and stores who the node is.
pub(crate) async fn read(parts: &Parts) -> Result<(), Unidentified> {
    let sysinfo = parts.clients.vminfod.sysinfo().await?;
    parts.node.identify(Identity::read(&sysinfo)?);
    Ok(())
}

/// Reads sysinfo, for ever.
pub(crate) async fn watch(parts: Arc<Parts>) {
    let parts = &*parts;
    let times = &parts.config.times;
    let window = Window { min: RETRY, max: times.config_poll };
    let mut retry = Backoff::new(&policy(window, None), parts.random.fork());
    let mut wait = times.config_poll;
    // One log line for each change of state, not for each reading.
    let mut logged = false;
    loop {
        match read(parts).await {
            Ok(()) => {
                retry.reset();
                let wrong = match parts.gate.writable() {
                    Err(wrong @ Refusal::WrongIdentity { .. }) => Some(wrong),
                    _ => None,
                };
                if let Some(wrong) = wrong.as_ref().filter(|_| !logged) {
                    tracing::error!("{wrong}");
                }
                logged = wrong.is_some();
                wait = if logged { times.config_poll } else { times.resync };
                parts.status.is(Task::Identity, wrong.map_or(State::Resting, State::Refused));
            }
            Err(err) if parts.node.identity().is_none() => {
                let why = daemon::log::chain(&err);
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!(reason = why, "waiting for vminfod's /sysinfo");
                }
                parts.status.is(Task::Identity, State::NoAnswer(why));
                wait = retry.next_delay().unwrap_or(times.config_poll);
            }
            // The node has not become another one.
            Err(_) => {}
        }
        tokio::time::sleep(wait).await;
    }
}
