// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The signals of one VM within a fold make one event. What only files say is read shortly before
//! the fold ends, and what was read is held until then: the end of the fold costs a commit and
//! nothing else. A signal that comes after such a reading began makes what it brought worthless.
//!
//! Must never let a reading of what a command says begin before the fold ends: the kernel may post
//! before it stores.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::vm_load::{LoadFault, Loaded};
use super::{Engine, Reading, Vm};
use crate::dirty::Stale;
use crate::store::Made;

/// How long before the end of its fold a reading of files begins: enough for nearly all of them, and
/// most signals of a burst have come.
const AHEAD: Duration = Duration::from_millis(4);

/// What a reading brought before it may be taken in.
pub(super) struct Brought {
    result: Result<Loaded, LoadFault>,
    /// What follows from it, as far as that is known before the fold ends.
    made: Option<Result<Made, LoadFault>>,
}

/// What only files of a VM say.
fn is_of_files(stale: Stale) -> bool {
    stale.without(Stale::CONFIG | Stale::LAST_EXITED | Stale::TIMES | Stale::RECEIVING).is_none()
}

impl Engine {
    /// Marks parts of a VM stale because of one of its files; its fold ends at `end`.
    pub(super) fn mark_file(&mut self, name: &str, stale: Stale, end: Instant) -> Option<&mut Vm> {
        let begin = end - self.ahead();
        let may_begin = |vm: &Vm| {
            let is_first = vm.due.is_none_or(|due| begin < due);
            vm.parts.is_some() && vm.reading.is_none() && is_first && is_of_files(vm.stale | stale)
        };
        if !self.vms.get(name).is_some_and(|vm| may_begin(vm)) {
            return self.mark(name, stale, end);
        }
        let vm = self.mark(name, stale, begin)?;
        vm.early = true;
        Some(vm)
    }

    fn ahead(&self) -> Duration {
        AHEAD.min(self.config.fold / 2)
    }

    /// Begins the reading of a VM that is due, unless what came meanwhile makes it wait for the end
    /// of the fold.
    pub(super) fn begin(&mut self, name: String) {
        let (now, ahead) = (Instant::now(), self.ahead());
        let Some(vm) = self.vms.get_mut(&*name) else { return };
        let is_early = vm.early && vm.waiters.is_empty();
        let end = vm.due.filter(|_| is_early).map_or(now, |due| due + ahead);
        if end > now && !is_of_files(vm.stale.without(Stale::OBJECT)) {
            (vm.due, vm.early) = (None, false);
            self.mark(&name, Stale::NONE, end);
            return;
        }
        self.start_reading(name, end);
    }

    /// Keeps what a reading brought before the end of its fold; gives back what is to be taken now.
    pub(super) fn hold(
        &mut self,
        name: &str,
        result: Result<Loaded, LoadFault>,
    ) -> Option<Result<Loaded, LoadFault>> {
        let Some(vm) = self.vms.get(name) else { return Some(result) };
        let until = vm.reading.as_ref().map(|reading| reading.until);
        if until.is_none_or(|until| until <= Instant::now()) {
            return Some(result);
        }
        // A reading that finds what is known composes nothing.
        let made = match &result {
            Ok(Loaded::Parts(parts, _)) if vm.parts.as_ref() != Some(parts) => {
                Some(self.make(name, parts))
            }
            _ => None,
        };
        if let Some(reading) = self.vms.get_mut(name).and_then(|vm| vm.reading.as_mut()) {
            reading.brought = Some(Brought { result, made });
            self.held.insert((reading.until, name.to_owned()));
        }
        None
    }

    /// Takes in what was held until now.
    pub(super) fn take_held(&mut self) {
        let now = Instant::now();
        while self.held.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.held.pop_first() else { return };
            let Some(vm) = self.vms.get_mut(&*name) else { continue };
            let Some(mut reading) = vm.reading.take() else { continue };
            let Some(mut brought) = reading.brought.take() else { continue };
            if vm.stale.without(Stale::OBJECT).is_none() && vm.waiters.is_empty() {
                if !vm.stale.is_none() {
                    // Whatever else it is composed of is not what it was.
                    brought.made = None;
                    reading.stale |= std::mem::take(&mut vm.stale);
                }
                vm.asked = None;
                vm.reading = Some(reading);
                self.take_reading(&name, brought.result, brought.made);
                continue;
            }
            let newer = std::mem::take(&mut vm.trace);
            vm.trace = newer.after(reading.trace);
            vm.looks = vm.looks.or(reading.looks);
            vm.waiters.append(&mut reading.waiters);
            self.mark(&name, reading.stale, now);
            self.board.edit(|view| view.pending.shift_remove(&name));
        }
    }
}

/// What a reading brings, or has brought, is wanted sooner.
pub(super) fn sooner(
    held: &mut BTreeSet<(Instant, String)>,
    name: &str,
    reading: &mut Reading,
    when: Instant,
) {
    if reading.brought.is_some() {
        held.remove(&(reading.until, name.to_owned()));
        held.insert((when, name.to_owned()));
    }
    reading.until = when;
}
