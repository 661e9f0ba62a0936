// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Work per VM, one job at a time for each, a few VMs at once. An event carries no work: it only
//! wakes the VM's lane, and the lane looks at the node as it is by then. A VM woken while its job
//! runs is held and runs again; one that has to wait is woken by its own due time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Jobs at once.
const AT_ONCE: usize = 4;

/// When a VM is due, and whether its NICs are to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// On the agent's clock.
    pub at: Duration,
    /// Compare its NICs with NAPI (else only what left it).
    pub upkeep: bool,
    /// Failed tries of it so far.
    pub tries: u32,
}

#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<String, Due>,
    busy: BTreeSet<String>,
}

/// The lanes of all VMs.
#[derive(Debug, Default)]
pub struct Lanes {
    queue: Mutex<Queue>,
    woken: Notify,
}

impl Lanes {
    fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes a VM's lane. Wakes fold: the earlier time wins, upkeep once asked for stays.
    pub fn wake(&self, vm: &str, due: Due) {
        self.with(|queue| {
            queue
                .due
                .entry(vm.to_owned())
                .and_modify(|known| {
                    known.at = known.at.min(due.at);
                    known.upkeep |= due.upkeep;
                    known.tries = known.tries.min(due.tries);
                })
                .or_insert(due);
        });
        self.woken.notify_one();
    }

    /// Takes the next VM that is due and not busy; else says when to look again.
    pub fn take(&self, now: Duration) -> Result<(String, Due), Option<Duration>> {
        self.with(|queue| {
            if queue.busy.len() >= AT_ONCE {
                return Err(None);
            }
            let free = queue.due.iter().filter(|(vm, _)| !queue.busy.contains(*vm));
            let Some((vm, due)) = free.min_by_key(|(_, due)| due.at) else { return Err(None) };
            if due.at > now {
                return Err(Some(due.at));
            }
            let (vm, due) = (vm.clone(), *due);
            queue.due.remove(&vm);
            queue.busy.insert(vm.clone());
            Ok((vm, due))
        })
    }

    /// A job ended.
    pub fn release(&self, vm: &str) {
        self.with(|queue| queue.busy.remove(vm));
        self.woken.notify_one();
    }

    /// Waits for a wake. Cancel-safe: a wake not waited for is kept.
    pub async fn wakes(&self) {
        self.woken.notified().await;
    }

    /// Nothing queued for now, nothing running?
    pub fn is_idle(&self, now: Duration) -> bool {
        self.with(|queue| queue.busy.is_empty() && queue.due.values().all(|due| due.at > now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_fold_a_busy_vm_is_held_and_the_earlier_time_wins() {
        let lanes = Lanes::default();
        let s = Duration::from_secs;
        let due = |at, upkeep| Due { at: s(at), upkeep, tries: 0 };
        lanes.wake("a", due(9, false));
        lanes.wake("a", due(3, true));
        assert_eq!(lanes.take(s(2)), Err(Some(s(3))));
        assert_eq!(lanes.take(s(3)), Ok(("a".to_owned(), due(3, true))));
        lanes.wake("a", due(0, true));
        assert_eq!(lanes.take(s(9)), Err(None), "never two jobs for one VM");
        lanes.release("a");
        assert!(lanes.take(s(9)).is_ok());
    }
}
