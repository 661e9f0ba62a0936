// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The start task: after a random wait VMAPI's list is compared with the node, and again every `relist`.
//! A comparison that fails is repeated as a whole.

use daemon::agent::State;
use tokio::time::Instant;

use crate::apply::compare;
use crate::parts::Parts;
use crate::status::Task;
use std::sync::Arc;

/// Compares, for ever.
pub(crate) async fn run(parts: Arc<Parts>) {
    let parts = &*parts;
    let times = &parts.config.times;
    let wait = parts.random.within(times.startup_delay);
    parts.status.is(Task::Start, State::StartupDelay(wait));
    tokio::time::sleep(wait).await;
    loop {
        until_compared(parts).await;
        parts.status.is(Task::Start, State::Resting);
        if times.relist.is_zero() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(parts.random.around(times.relist, 0.25)).await;
    }
}

async fn until_compared(parts: &Parts) {
    let mut retry = parts.retry();
    loop {
        parts.status.ready(Task::Start, &parts.gate).await;
        let began = Instant::now();
        match compare(parts).await {
            Ok(()) => {
                parts.status.started(began);
                return;
            }
            Err(error) => {
                let why = parts.failed(&error);
                parts.status.is(Task::Start, State::Retrying(why.to_string()));
                tokio::time::sleep(retry.next_delay()).await;
            }
        }
    }
}
