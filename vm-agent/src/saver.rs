// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the last run left, and what the state file should say now. Times in the file
//! are the wall clock's. A clock that is ahead at a restart must not end the protection of hidden VMs,
//! so it begins anew with each start.

use std::time::Duration;

use daemon::brake::{DAY, Day};
use daemon::state_file::WallTime;

use crate::parts::Parts;
use crate::state_file::Saved;

/// Takes over what the last run left. Called once, before the tasks start.
pub(crate) async fn restore(parts: &Parts) {
    let now = daemon::wall::now();
    let (file, memory) = (&parts.state_file, parts.config.times.hidden_memory);
    let kept = file.restore::<Saved>("what is gone has to wait").await;
    let clock = parts.clock.now();
    parts.node.change(|known| {
        known.is_first_run = kept.is_none() || file.is_damaged();
        known.hidden_unknown =
            file.lost().map_or(Duration::ZERO, |lost| clock + lost.rest(memory, now));
    });
    if let Some(kept) = kept {
        let rest = |seen: WallTime| clock + seen.rest(DAY, now);
        let strangers = kept.strangers.into_iter().map(|(vm, seen)| (vm, rest(seen))).collect();
        parts.node.change(|known| {
            known.strangers = strangers;
            known.day = Day::restore(kept.day, clock, now);
        });
        let hidden = kept.hidden.into_keys().collect();
        parts.node.restore(kept.told, kept.left, hidden, &kept.unseen);
    }
}

/// Returns what the file should say now; none before the first snapshot, when the last run's file says more.
pub(crate) fn collect(parts: &Parts) -> Option<Saved> {
    let is_synced = parts.gate.is_synced();
    if parts.node.with(|known| known.is_first_run || known.here.is_empty() && !is_synced) {
        return None;
    }
    parts.state_file.forget_damage(parts.config.times.hidden_memory);
    let (now, clock) = (daemon::wall::now(), parts.clock.now());
    let memory = parts.config.times.hidden_memory;
    let mut kept = Saved::default();
    parts.node.forget_hidden();
    parts.node.with(|known| {
        kept.told.clone_from(&known.told);
        kept.day = known.day.keep(clock, now);
        kept.left = known.gone.keys().cloned().collect();
        let unseen = known.gone.iter().filter(|(_, gone)| !gone.seen);
        kept.unseen = unseen.map(|(vm, _)| vm.clone()).collect();
        for (vm, until) in known.strangers.iter().filter(|(_, until)| clock < **until) {
            let seen = WallTime::ago(now, (clock + DAY).saturating_sub(*until));
            kept.strangers.insert(vm.clone(), seen);
        }
        for (vm, until) in &known.hidden {
            let since = (clock + memory).saturating_sub(*until);
            let is_here = known.here.contains_key(vm);
            kept.hidden.insert(vm.clone(), (!is_here).then(|| WallTime::ago(now, since)));
        }
    });
    kept.lost = parts.state_file.lost().filter(|lost| !lost.rest(memory, now).is_zero());
    Some(kept)
}
