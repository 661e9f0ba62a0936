// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an agent has been answered and told, as far as its next steps depend on it.
//!
//! A task of an agent remembers only what it was answered itself; what tasks share is part of the
//! agent's knowledge, which a state has apart. So two orders of answers to different tasks lead to
//! one state as soon as the agent knows the same. `Reduction::None` keeps them apart, to compare.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::task::Id;

use super::{Answered, Held};

/// So many views that came too late, one after another, are what an agent puts up with.
const TRIES: u8 = 5;

/// What one agent has been answered and told.
#[derive(Default)]
pub(super) struct Heard {
    tasks: BTreeMap<Id, Answers>,
    /// Everything, in order.
    in_order: u64,
}

/// What one task has been answered.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Answers {
    in_order: u64,
    /// Answers since then that came too late: a task gives up after some.
    too_late: u8,
}

impl Heard {
    pub(super) fn told(&mut self, event: &impl Hash) {
        self.in_order = mixed(self.in_order, event);
    }

    pub(super) fn answered(&mut self, task: Id, answered: Answered, answer: &impl Hash) {
        self.in_order = mixed(self.in_order, answer);
        let before = self.tasks.entry(task).or_default();
        *before = match answered {
            Answered::InTime => Answers { in_order: mixed(before.in_order, answer), too_late: 0 },
            Answered::TooLate => Answers { too_late: before.too_late + 1, ..*before },
        };
    }

    /// Returns true if this task was last answered with a view that is older than what its agent has learnt since,
    /// and has not given up.
    pub(super) fn has_old_view(&self) -> bool {
        let task = self.tasks.get(&tokio::task::id());
        task.is_some_and(|answers| (1..TRIES).contains(&answers.too_late))
    }

    pub(super) fn forget_all_but(&mut self, busy: &[Id]) {
        self.tasks.retain(|task, _| busy.contains(task));
        if busy.is_empty() {
            self.in_order = 0;
        }
    }

    /// Each task's answers and what it waits for, in an order that does not depend on the tasks'
    /// numbers.
    pub(super) fn hash_into(
        &self,
        hasher: &mut DefaultHasher,
        held: &VecDeque<Held>,
        in_order: bool,
    ) {
        let busy: BTreeSet<Id> = held.iter().map(|held| held.task).collect();
        let task = |task: &Id| {
            let waits = held.iter().filter(|held| held.task == *task);
            let mut waits: Vec<_> = waits.map(|held| (&held.label, held.overtaken)).collect();
            waits.sort();
            (self.tasks.get(task), waits)
        };
        let mut tasks: Vec<_> = busy.iter().map(task).collect();
        tasks.sort();
        tasks.hash(hasher);
        let order = if in_order { self.in_order } else { 0 };
        order.hash(hasher);
    }
}

fn mixed(seen: u64, more: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seen, more).hash(&mut hasher);
    hasher.finish()
}
