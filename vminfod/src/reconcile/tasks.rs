// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tasks of the reconciler, and their results.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use daemon::tasks::caught;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use vm_model::datasets::SnapshotTable;
use vm_model::origin::{Origin, ParseError};
use vm_model::parse::sysinfo::Sysinfo;
use vm_model::parse::zfs_list::Row;
use vm_model::stale::Stale;

use super::listing;
use super::reading::{Loaded, ReadFault};
use super::sweep::Comparison;
use crate::node::LoadError;
use crate::node::load::Node;

/// Tasks that are alike and began within this time end in the order in which they began, at most so
/// much later: the order of events is that of their signals.
const TOGETHER: Duration = Duration::from_millis(10);

/// The result of a task.
pub enum Done {
    Vm(Arc<str>, Result<Loaded, ReadFault>),
    /// The listing of one dataset; no rows if it does not exist.
    Dataset(String, Result<Vec<Row>, LoadError>),
    /// The filesystems and volumes of the node, and when their listing began.
    Datasets(Instant, Result<Vec<Row>, LoadError>),
    /// The listing of the node's snapshots.
    Snapshots(Result<SnapshotTable, LoadError>),
    Sysinfo(Result<Sysinfo, LoadError>),
    /// The whole node; `None` if the reading panicked.
    Node(Option<Result<Box<Node>, LoadError>>),
    /// A sweep; `None` if it panicked.
    Sweep(Option<Box<Comparison>>),
    Zones(Result<Box<listing::Listed>, LoadError>),
    /// The zones that differed are read.
    ZonesRead(Box<listing::Differing>),
    Nothing,
}

/// Which tasks take about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    /// The readings of these parts of a VM.
    Vm(Stale),
    /// The listings of one dataset.
    Dataset,
    /// None: it has no like.
    Nothing,
}

/// Reads a source; a panic is a failed reading.
pub async fn read<T>(
    origin: Origin,
    work: impl Future<Output = Result<T, LoadError>>,
) -> Result<T, LoadError> {
    let panicked = || Err(ParseError::content(origin, "the reading panicked").into());
    caught(origin.name(), work).await.unwrap_or_else(panicked)
}

/// A task that was spawned and not handed out.
struct Task {
    id: Id,
    like: Like,
    began: Instant,
    /// When it ended, and its result.
    ended: Option<(Instant, Done)>,
}

/// The tasks, in the order in which they were spawned.
#[derive(Default)]
pub struct Tasks {
    set: JoinSet<Done>,
    tasks: Vec<Task>,
}

impl Tasks {
    pub fn spawn(&mut self, like: Like, work: impl Future<Output = Done> + Send + 'static) {
        let id = self.set.spawn(work).id();
        self.tasks.push(Task { id, like, began: Instant::now(), ended: None });
    }

    /// Waits for the next task to end, without end if there is none. Tasks that are alike and began
    /// together are handed out in the order in which they began. Cancel-safe.
    pub async fn next(&mut self) -> Done {
        loop {
            if let Some(done) = self.take(Instant::now()) {
                return done;
            }
            let ended = self.tasks.iter().filter_map(|task| Some(task.ended.as_ref()?.0)).min();
            let held = async {
                match ended {
                    Some(ended) => sleep_until(ended + TOGETHER).await,
                    None => std::future::pending().await,
                }
            };
            // All arms are cancel-safe; a result that was taken is stored.
            // One order, so that a simulated run can be repeated.
            tokio::select! {
                biased;
                Some(done) = self.set.join_next_with_id() => self.ended(done),
                () = held => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Returns true if no task is under way.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn ended(&mut self, done: Result<(Id, Done), JoinError>) {
        // What may panic is caught inside the task.
        let (id, done) = done.unwrap_or_else(|error| (error.id(), Done::Nothing));
        if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
            task.ended = Some((Instant::now(), done));
        }
    }

    /// Takes the first result that no earlier task holds back.
    fn take(&mut self, now: Instant) -> Option<Done> {
        let holds = |task: &Task, later: &Task| {
            task.ended.is_none()
                && task.like != Like::Nothing
                && task.like == later.like
                && later.began - task.began < TOGETHER
        };
        let is_free = |at: usize, task: &Task| {
            let Some((ended, _)) = task.ended else { return false };
            let mut before = self.tasks.iter().take(at);
            ended + TOGETHER <= now || !before.any(|other| holds(other, task))
        };
        let mut tasks = self.tasks.iter().enumerate();
        let at = tasks.find(|(at, task)| is_free(*at, task))?.0;
        self.tasks.remove(at).ended.map(|(_, done)| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(tasks: &mut Tasks, name: &str, parts: Stale, ms: u64) {
        let (own, span) = (Arc::from(name), Duration::from_millis(ms));
        tasks.spawn(Like::Vm(parts), async move {
            tokio::time::sleep(span).await;
            Done::Vm(own, Ok(Loaded::Gone))
        });
    }

    async fn name(tasks: &mut Tasks) -> String {
        match tasks.next().await {
            Done::Vm(name, _) => name.to_string(),
            _ => panic!("not a reading"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readings_that_began_together_end_in_their_order() {
        let (mut tasks, began) = (Tasks::default(), Instant::now());
        reading(&mut tasks, "a", Stale::CONFIG, 6);
        reading(&mut tasks, "b", Stale::CONFIG, 3);
        reading(&mut tasks, "hangs", Stale::ZONEADM, 500);
        reading(&mut tasks, "c", Stale::ZONEADM, 3);
        reading(&mut tasks, "other", Stale::XML, 4);
        let mut ended = Vec::new();
        for _ in 0..5 {
            ended.push((name(&mut tasks).await, began.elapsed().as_millis()));
        }
        let wanted = [("other", 4), ("a", 6), ("b", 6), ("c", 13), ("hangs", 500)];
        assert_eq!(ended, wanted.map(|(name, ms)| (name.to_owned(), ms)));
        assert!(tasks.is_empty());
        // One that began later waits for nothing.
        reading(&mut tasks, "hangs", Stale::CONFIG, 500);
        tokio::time::sleep(TOGETHER).await;
        reading(&mut tasks, "a", Stale::CONFIG, 1);
        assert_eq!((name(&mut tasks).await, began.elapsed().as_millis()), ("a".to_owned(), 511));
    }
}
