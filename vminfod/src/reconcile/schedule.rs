// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When each VM is read.
//!
//! * A VM is due at once, and its reading begins if fewer than `at_once` VMs are being read.
//! * All that is wanted while the VM is being read, or within `gap` after its reading began, is one
//!   reading, `gap` after the last one began.
//! * An earlier time replaces a later one.

use std::sync::Arc;

use tokio::time::Instant;
use vm_model::stale::Stale;

use super::status::Status;
use super::vms::{Reasons, Vm, Vms};

/// The most names; more can only be garbage from a source.
const NAMES_CAP: usize = 50_000;

impl Vms {
    /// Marks parts of a VM stale, to be read at this time or earlier. Returns `None` if there are too
    /// many names.
    pub fn mark(
        &mut self,
        name: &str,
        stale: Stale,
        reason: Reasons,
        at: Instant,
    ) -> Option<&mut Vm> {
        let name: Arc<str> = match self.vms.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None if self.vms.len() >= NAMES_CAP => return None,
            None => name.into(),
        };
        let (vm, queue) = (self.vms.entry(Arc::clone(&name)).or_default(), &mut self.queue);
        vm.stale |= stale;
        vm.reasons |= reason;
        vm.signalled.get_or_insert_with(Instant::now);
        let at = vm.began.map_or(at, |began| at.max(began + queue.gap));
        if vm.due.is_none_or(|(due, _)| at < due) {
            queue.count += 1;
            if let Some((due, count)) = vm.due.replace((at, queue.count)) {
                queue.due.remove(&(due, count, Arc::clone(&name)));
            }
            queue.due.insert((at, queue.count, Arc::clone(&name)));
        }
        show(vm, &name, &self.status);
        Some(vm)
    }

    /// Takes the next VM that is due, unless `at_once` are being read. Its reading begins now.
    pub fn next(&mut self, now: Instant) -> Option<Arc<str>> {
        let first = self.first().filter(|(at, ..)| *at <= now)?.clone();
        self.queue.due.remove(&first);
        let (.., name) = first;
        let vm = self.vms.get_mut(&name)?;
        (vm.due, vm.began) = (None, Some(now));
        self.queue.running += 1;
        Some(name)
    }

    /// When [`Vms::next`] returns a VM; `None` if it depends on the end of a reading.
    pub fn deadline(&self) -> Option<Instant> {
        self.first().map(|(at, ..)| *at)
    }

    fn first(&self) -> Option<&(Instant, u64, Arc<str>)> {
        let is_free = |name: &str| self.get(name).is_some_and(|vm| vm.reading.is_none());
        let mut free = self.queue.due.iter().filter(|(.., name)| is_free(name));
        if self.queue.running < self.queue.at_once { free.next() } else { None }
    }

    /// The reading of a VM has ended.
    pub fn ended(&mut self, name: &Arc<str>) {
        self.queue.running = self.queue.running.saturating_sub(1);
        if let Some(vm) = self.get(name) {
            show(vm, name, &self.status);
        }
    }

    /// Removes a name without parts and without a reading.
    pub fn remove_idle(&mut self, name: &Arc<str>) {
        let is_idle = |vm: &Vm| {
            vm.parts.is_none()
                && vm.stale.is_empty()
                && vm.waiters.is_empty()
                && vm.reading.is_none()
        };
        if self.get(name).is_some_and(is_idle)
            && let Some(Vm { due: Some((at, count)), .. }) = self.vms.remove(name)
        {
            self.queue.due.remove(&(at, count, Arc::clone(name)));
        }
    }
}

/// Shows when a VM is due that is not being read.
fn show(vm: &Vm, name: &Arc<str>, status: &Status) {
    if let (Some((due, _)), None) = (vm.due, &vm.reading) {
        status.edit(|view| view.waits(name, due, vm.signalled.unwrap_or(due)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const GAP: Duration = Duration::from_millis(10);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn due(vms: &Vms, name: &str) -> Option<Instant> {
        let vm = vms.get(name).filter(|vm| vm.reading.is_none())?;
        vm.due.map(|(at, _)| at)
    }

    fn want(vms: &mut Vms, name: &str, at: Instant) -> Option<Instant> {
        vms.mark(name, Stale::ZONEADM, Reasons::ASKED, at);
        due(vms, name)
    }

    fn next(vms: &mut Vms, now: Instant) -> Option<Arc<str>> {
        let name = vms.next(now)?;
        vms.get_mut(&name).unwrap().reading = Some(Box::default());
        Some(name)
    }

    fn ended(vms: &mut Vms, name: &Arc<str>) -> Option<Instant> {
        vms.get_mut(name).unwrap().reading = None;
        vms.ended(name);
        due(vms, name)
    }

    fn vms(at_once: usize) -> Vms {
        Vms::new(GAP, at_once, Status::default())
    }

    #[test]
    fn first_signal_is_due_at_once_and_a_burst_once_per_gap() {
        let (mut all, t, vm) = (vms(8), Instant::now(), Arc::from("a"));
        assert_eq!(want(&mut all, &vm, t), Some(t));
        assert_eq!(next(&mut all, t), Some(Arc::clone(&vm)));
        // During the reading, and after it within the gap: one more, a gap after the first.
        assert_eq!(want(&mut all, &vm, t + ms(1)), None);
        assert_eq!(ended(&mut all, &vm), Some(t + GAP));
        assert_eq!(want(&mut all, &vm, t + ms(5)), Some(t + GAP));
        assert_eq!((next(&mut all, t + ms(9)), all.deadline()), (None, Some(t + GAP)));
        assert_eq!(next(&mut all, t + GAP), Some(Arc::clone(&vm)));
        assert_eq!(ended(&mut all, &vm), None);
        // Later than that: at once.
        assert_eq!(want(&mut all, &vm, t + ms(50)), Some(t + ms(50)));
    }

    #[test]
    fn signal_precedes_a_retry() {
        let (mut all, t, vm) = (vms(8), Instant::now(), Arc::from("a"));
        assert_eq!(want(&mut all, &vm, t + ms(5000)), Some(t + ms(5000)));
        assert_eq!(want(&mut all, &vm, t + ms(20)), Some(t + ms(20)));
        assert_eq!(want(&mut all, &vm, t + ms(6000)), Some(t + ms(20)));
        assert_eq!(all.deadline(), Some(t + ms(20)));
        all.get_mut("a").unwrap().stale = Stale::empty();
        all.remove_idle(&vm);
        assert_eq!((next(&mut all, t + ms(9000)), all.deadline()), (None, None));
    }

    #[test]
    fn runs_a_limited_number_in_signal_order() {
        let (mut all, t) = (vms(2), Instant::now());
        let names: Vec<Arc<str>> = ["c", "a", "b"].map(Arc::from).to_vec();
        for name in &names {
            want(&mut all, name, t);
        }
        assert_eq!([next(&mut all, t), next(&mut all, t)], [Some("c".into()), Some("a".into())]);
        assert_eq!((next(&mut all, t), all.deadline()), (None, None));
        ended(&mut all, &names[0]);
        assert_eq!(next(&mut all, t), Some("b".into()));
    }

    proptest! {
        /// Every wanted VM is read, but not twice at once, not twice within the gap, and no more than
        /// `at_once` at once.
        #[test]
        fn every_want_leads_to_a_reading(steps in proptest::collection::vec((0..4_usize, 0..3_u8, 0..15_u64), 1..80)) {
            let (mut all, start) = (vms(2), Instant::now());
            let names: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).to_vec();
            let (mut now, mut running, mut wanted) = (start, Vec::new(), vec![None; 4]);
            let mut began = [None; 4];
            for (vm, step, pause) in steps {
                now += ms(pause);
                match step {
                    0 => {
                        want(&mut all, &names[vm], now);
                        wanted[vm].get_or_insert(now);
                    }
                    1 => while let Some(name) = next(&mut all, now) {
                        let at = names.iter().position(|one| *one == name).unwrap();
                        prop_assert!(!running.contains(&at) && running.len() < 2);
                        prop_assert!(began[at].is_none_or(|before| now - before >= GAP));
                        (began[at], wanted[at]) = (Some(now), None);
                        running.push(at);
                    },
                    _ => if let Some(at) = running.pop() {
                        ended(&mut all, &names[at]);
                    },
                }
            }
            while let Some(at) = running.pop() {
                ended(&mut all, &names[at]);
            }
            now += ms(1000);
            while let Some(name) = next(&mut all, now) {
                wanted[names.iter().position(|one| *one == name).unwrap()] = None;
                ended(&mut all, &name);
            }
            prop_assert!(wanted.iter().all(Option::is_none));
        }
    }
}
