// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The worker task: runs the turns of the VMs that are due, a few at once and one for each VM.

use std::sync::Arc;
use std::time::Duration;

use daemon::schedule::Due;
use tokio::task::JoinSet;

use crate::apply::{After, turn};
use crate::parts::Parts;

/// Releases the VM even if its turn panics.
struct Busy<'a>(&'a Parts, &'a str);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.schedule.release(self.1);
    }
}

/// Runs turns, for ever.
pub(crate) async fn work(parts: &Arc<Parts>) {
    let mut turns = JoinSet::new();
    loop {
        parts.until_writable(None).await;
        let now = parts.clock.now();
        let until = match parts.schedule.take(now) {
            Ok((vm, _)) => {
                let parts = Arc::clone(parts);
                turns.spawn(async move {
                    let busy = Busy(&parts, &vm);
                    one(&parts, &vm).await;
                    drop(busy);
                });
                continue;
            }
            Err(until) => until,
        };
        let nap = until.map_or(Duration::from_secs(3600), |at| at.saturating_sub(now));
        // All arms are cancel-safe: a wake is kept, a finished turn stays in the set.
        // One order, so that a simulated run can be repeated.
        tokio::select! {
            biased;
            Some(ended) = turns.join_next() => {
                if let Err(err) = ended && err.is_panic() {
                    tracing::error!("the turn of a VM panicked");
                }
            }
            () = parts.schedule.woken() => {}
            () = tokio::time::sleep(nap) => {}
        }
    }
}

async fn one(parts: &Parts, vm: &str) {
    let _no_start = parts.turns.read().await;
    match turn(parts, vm).await {
        After::Settled => parts.schedule.succeeded(vm),
        After::Later => parts.schedule.wake_later(vm, parts.clock.now(), ()),
        After::In(wait) => {
            parts.schedule.wake(vm, Due { at: parts.clock.now() + wait, work: () });
        }
    }
}
