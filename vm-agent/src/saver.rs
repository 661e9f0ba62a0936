// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state file task: takes over what the last run left, then saves what changes. Times in the file
//! are the wall clock's. A clock that is ahead at a restart must not end the protection of hidden VMs,
//! so it begins anew with each start.

use std::time::Duration;

use daemon::Window;
use daemon::state_file::Seen;
use daemon::timing::policy;
use jiff::{SignedDuration, Timestamp};
use sdc_clients::retry::Backoff;

use crate::parts::Parts;
use crate::state_file::Kept;

/// The waits after a write that failed.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(4) };

/// Takes over what the last run left. Called once, before the tasks start.
pub(crate) async fn restore(parts: &Parts) {
    let now = daemon::wall::now();
    let (file, memory) = (&parts.state_file, parts.config.times.hidden_memory);
    let kept = match file.read::<Kept>(&parts.cn_uuid).await {
        Ok(kept) => kept,
        Err(damage) => {
            tracing::error!(reason = %damage, "the state file cannot be used: what is gone has to wait");
            file.damaged(&damage, Seen(now));
            None
        }
    };
    file.restore(kept.as_ref().and_then(|kept| kept.lost));
    let clock = parts.clock.now();
    parts.node.change(|known| {
        known.is_first_run = kept.is_none();
        known.hidden_unknown =
            file.lost().map_or(Duration::ZERO, |lost| clock + lost.rest(memory, now));
    });
    if let Some(kept) = kept {
        parts.node.restore(kept.told, kept.left, kept.hidden.into_keys().collect());
    }
}

/// Returns what the file should say now.
fn collect(parts: &Parts) -> Kept {
    let (now, clock) = (daemon::wall::now(), parts.clock.now());
    let memory = parts.config.times.hidden_memory;
    let mut kept = Kept::new(&parts.cn_uuid);
    parts.node.forget_hidden();
    parts.node.look(|known| {
        kept.told.clone_from(&known.told);
        kept.left = known.gone.keys().cloned().collect();
        for (vm, until) in &known.hidden {
            let since = (clock + memory).saturating_sub(*until);
            let is_here = known.here.contains_key(vm);
            kept.hidden.insert(vm.clone(), (!is_here).then(|| ago(now, since)));
        }
    });
    kept.lost = parts.state_file.lost().filter(|lost| !lost.rest(memory, now).is_zero());
    kept
}

/// Returns the wall clock's time `ago`, in whole seconds: the two clocks drift.
fn ago(now: Timestamp, ago: Duration) -> Seen {
    let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
    let at = now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH);
    Seen(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// Saves the file whenever its content changes, for ever.
pub(crate) async fn keep_saving(parts: &Parts) {
    if parts.state_file.is_damaged() {
        parts.state_file.keep_damaged().await;
    }
    let mut saved = None;
    let mut retry = Backoff::new(&policy(RETRY, None), parts.random.fork());
    loop {
        if save(parts, &mut saved).await {
            retry.reset();
            parts.state_file.changed().await;
        } else {
            tokio::time::sleep(retry.next_delay().unwrap_or(RETRY.max)).await;
        }
    }
}

/// Saves the file if its content differs from `saved`. Returns false if that failed.
pub(crate) async fn save(parts: &Parts, saved: &mut Option<Kept>) -> bool {
    // Before the first snapshot the last run's file says more.
    if parts.node.look(|known| known.is_first_run || known.here.is_empty() && !known.synced) {
        return true;
    }
    parts.state_file.forget_damage(parts.config.times.hidden_memory);
    let kept = collect(parts);
    if saved.as_ref() == Some(&kept) {
        return true;
    }
    let fault = parts.state_file.write(kept.clone()).await.err().map(|err| err.to_string());
    let good = fault.is_none();
    if good {
        *saved = Some(kept);
    }
    if parts.state_file.set_fault(fault.clone())
        && let Some(reason) = fault
    {
        tracing::error!(reason, "a restart would forget which VMs were hidden");
    }
    good
}
