// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Work on files, in threads that may block. Each piece of it names the place where its files are;
//! a place that hangs fails its own piece after the deadline, and at once from then on, until it
//! answers (see `crate::lanes`).
//!
//! Must never let one place hold up the others for longer than `PATIENCE`.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use crate::root::{ReadError, Root};

/// A place that takes longer than this has the rest of a walk go on in another thread.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often somebody looks whether a walk comes forward.
const LOOK: Duration = Duration::from_millis(250);

/// How nice work in the background is.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

/// Whether somebody waits for what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// Yes, and nothing else is as urgent.
    Now,
    /// Yes, but whoever waits for less goes first: low priority, and all the threads it can use.
    Soon,
    /// No: low priority, and few threads.
    Background,
}

/// Drives work in a thread of its own at low priority, so that whoever asks for what is there
/// already need not wait for it. `None`: it panicked. Not where time is simulated: the clock would
/// not know of that thread.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (done, result) = oneshot::channel();
    let (runtime, mut gone) = (Handle::current(), done);
    let drive = move || {
        step_back();
        runtime.block_on(async {
            // Cancelled where nobody wants the result any more: the work's commands end with it.
            let result = tokio::select! {
                result = work => Some(result),
                () = gone.closed() => None,
            };
            if let Some(result) = result {
                let _nobody_waits_any_more = gone.send(result);
            }
        });
    };
    // The runtime waits at its end for a thread of its own that waits for this one.
    tokio::task::spawn_blocking(move || {
        let thread = std::thread::Builder::new().name("refresh".to_owned()).spawn(drive);
        if let Err(error) = thread.map(|thread| drop(thread.join())) {
            tracing::warn!(%error, "no thread for a refresh");
        }
    });
    result.await.ok()
}

impl Root {
    /// Reads a regular file of at most `cap` bytes.
    pub async fn read_capped(&self, path: &Path, cap: u64) -> Result<Vec<u8>, ReadError> {
        let path = path.to_path_buf();
        let place = path.display().to_string();
        self.on_files(&place, move |root| Ok(root.read_file(&path, cap)?.bytes)).await?
    }

    /// Does work on the files of one place (a zonepath, or a file that is no zone's).
    pub async fn on_files<T: Send + 'static>(
        &self,
        place: &str,
        work: impl FnOnce(&Root) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let (lanes, deadline) = (self.lanes().clone(), self.deadline());
        if lanes.hangs(place) {
            return Err(ReadError::Hangs);
        }
        let (root, name) = (self.clone(), Arc::<str>::from(place));
        let thread = move || {
            let inside = root.lanes().enter(name, root.deadline()).ok_or(ReadError::Hangs)?;
            let done = catch_unwind(AssertUnwindSafe(|| work(&root)));
            drop(inside);
            done.map_err(|_| panicked())
        };
        match timeout(deadline, tokio::task::spawn_blocking(thread)).await {
            Ok(done) => done.map_err(|error| ReadError::io(std::io::Error::other(error)))?,
            Err(_) => {
                lanes.give_up(place);
                Err(ReadError::Deadline(deadline))
            }
        }
    }

    /// Does the work for each of these places by its number, in as few threads as do not hang: one.
    pub async fn walk<T: Send + 'static>(
        &self,
        places: Vec<Arc<str>>,
        haste: Haste,
        work: impl Fn(&Root, usize) -> T + Send + Sync + 'static,
    ) -> Vec<Result<T, ReadError>> {
        let count = places.len();
        let mut all: Vec<Option<Result<T, ReadError>>> = (0..count).map(|_| None).collect();
        let walk = Arc::new(Walk::new(self.clone(), places, Box::new(work)));
        let (mut missing, mut slow, mut still) = (count, BTreeMap::new(), Duration::ZERO);
        if count > 0 {
            walk.start(haste);
        }
        while missing > 0 {
            let ended = timeout(LOOK, walk.ended.notified()).await.is_ok();
            let before = missing;
            for (at, result) in std::mem::take(&mut lock(&walk.progress).done) {
                if let Some(slot @ None) = all.get_mut(at) {
                    *slot = Some(result);
                    missing -= 1;
                }
            }
            // As long as it comes forward nothing hangs.
            still = if ended || missing < before { Duration::ZERO } else { still + LOOK };
            if still < PATIENCE {
                continue;
            }
            still = Duration::ZERO;
            for at in walk.overdue(&mut slow) {
                if let Some(slot @ None) = all.get_mut(at) {
                    *slot = Some(Err(ReadError::Deadline(self.deadline())));
                    missing -= 1;
                }
            }
            walk.start(haste);
        }
        all.into_iter().map(|one| one.unwrap_or(Err(ReadError::Hangs))).collect()
    }
}

type Work<T> = Box<dyn Fn(&Root, usize) -> T + Send + Sync>;

/// One walk, shared by its threads and the one who waits for them.
struct Walk<T> {
    root: Root,
    places: Vec<Arc<str>>,
    work: Work<T>,
    /// The next place.
    next: AtomicUsize,
    /// Only the last thread that was started goes on to a next place.
    last_thread: AtomicUsize,
    progress: Mutex<Progress<T>>,
    /// A thread has found no place left.
    ended: Notify,
}

struct Progress<T> {
    under_way: Vec<usize>,
    /// Results that nobody has taken yet: who waits is woken for all of them, not for each.
    done: Vec<(usize, Result<T, ReadError>)>,
}

impl<T> Progress<T> {
    fn end(&mut self, ended: Option<(usize, Result<T, ReadError>)>) {
        if let Some((at, result)) = ended {
            self.under_way.retain(|under_way| *under_way != at);
            self.done.push((at, result));
        }
    }
}

impl<T: Send + 'static> Walk<T> {
    fn new(root: Root, places: Vec<Arc<str>>, work: Work<T>) -> Self {
        let (next, last_thread, ended) = Default::default();
        let done = Vec::with_capacity(places.len());
        let progress = Mutex::new(Progress { under_way: Vec::new(), done });
        Walk { root, places, work, next, last_thread, progress, ended }
    }

    /// Starts a thread, if there is a place left for it.
    fn start(self: &Arc<Self>, haste: Haste) {
        if self.next.load(Ordering::Relaxed) >= self.places.len() {
            return;
        }
        let (walk, me) = (Arc::clone(self), self.last_thread.fetch_add(1, Ordering::Relaxed) + 1);
        // The runtime is told of a thread that it does not own by one of its own that waits for it:
        // else a simulated clock would run on meanwhile.
        tokio::task::spawn_blocking(move || match haste {
            Haste::Now => walk.go(me),
            Haste::Soon | Haste::Background => {
                // A priority once lowered cannot be raised again, so no thread of the pool may do it.
                let lowered = {
                    let walk = Arc::clone(&walk);
                    move || {
                        step_back();
                        walk.go(me);
                    }
                };
                match std::thread::Builder::new().name("background".to_owned()).spawn(lowered) {
                    Ok(thread) => drop(thread.join()),
                    Err(_) => walk.go(me),
                }
            }
        });
    }

    fn go(&self, me: usize) {
        let root = self.root.held_open();
        let mut ended = None;
        while self.last_thread.load(Ordering::Relaxed) == me {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = self.places.get(at) else { break };
            {
                let mut progress = lock(&self.progress);
                progress.end(ended.take());
                progress.under_way.push(at);
            }
            let entered = self.root.lanes().enter(Arc::clone(place), self.root.deadline());
            let result = entered.ok_or(ReadError::Hangs).and_then(|inside| {
                let done = catch_unwind(AssertUnwindSafe(|| (self.work)(&root, at)));
                drop(inside);
                done.map_err(|_| panicked())
            });
            ended = Some((at, result));
        }
        lock(&self.progress).end(ended);
        // It hung, and others have gone on: what it brought at last may be what is waited for.
        self.ended.notify_one();
    }

    /// What has been under way since the deadline and longer, which is given up. `slow`: what was
    /// under way before, and since when.
    fn overdue(&self, slow: &mut BTreeMap<usize, Instant>) -> Vec<usize> {
        let under_way = lock(&self.progress).under_way.clone();
        slow.retain(|at, _| under_way.contains(at));
        let since = Instant::now() - PATIENCE;
        for at in under_way {
            slow.entry(at).or_insert(since);
        }
        let late = slow.iter().filter(|(_, since)| since.elapsed() >= self.root.deadline());
        let late: Vec<usize> = late.map(|(at, _)| *at).collect();
        late.iter().filter_map(|at| self.places.get(*at)).for_each(|at| {
            self.root.lanes().give_up(at);
        });
        late
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panicked() -> ReadError {
    ReadError::io(std::io::Error::other("the reading panicked"))
}

/// Lowers the priority of this thread, where the system gives threads one of their own. On illumos
/// nice(2) and setpriority(3C) are the whole process's, and the daemon must not be slow;
/// priocntl(2) knows single LWPs, but the libc crate has no binding of it and unsafe code of our own
/// is not worth it: the time-sharing and fair-share classes let a thread that uses up its time sink
/// by themselves, and what it does here is two threads at most that yield after every zone.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(BACKGROUND_NICE) {
        tracing::debug!(%error, "work in the background keeps its priority");
    }
}

#[cfg(test)]
mod tests;
