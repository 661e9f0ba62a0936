// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The worker task: runs the turns of the VMs that are due, a few at once and one for each VM.

use std::sync::Arc;

use crate::apply::{After, turn};
use crate::parts::Parts;
use crate::status::Count;

/// Runs turns, for ever.
pub(crate) async fn work(parts: Arc<Parts>) {
    let run = |vm: String, ()| {
        let parts = Arc::clone(&parts);
        async move { one(&parts, &vm).await }
    };
    parts.schedule.work(parts.clock, run, || parts.status.count(Count::Errors)).await;
}

async fn one(parts: &Parts, vm: &str) {
    parts.gate.until_writable(|_| ()).await;
    let _turn = parts.turns.begin(vm).await;
    match turn(parts, vm).await {
        After::Settled => parts.schedule.succeeded(vm),
        After::Later => parts.schedule.wake_later(vm, parts.clock.now(), ()),
        After::In(wait) => {
            parts.schedule.wake(vm, parts.clock.now() + wait, ());
        }
    }
}
