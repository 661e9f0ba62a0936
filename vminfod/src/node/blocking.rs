// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Work on files, in threads that may block.
//!
//! A file system may hang, and a thread that uses it hangs as well and cannot be killed. So each piece
//! of work names its place (a zonepath). A place that does not answer within the deadline is *hung*: its
//! work fails, later work on it fails at once, and it is usable again when its threads return. The
//! number of hung threads is limited, per pool and in total.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::root::{ReadError, Root};

/// Places that one thread works on, one after another: a thread per place costs more than the work.
const CHUNK: usize = 32;

/// The places that one thread works on.
struct Chunk<T> {
    places: Vec<(usize, Arc<str>)>,
    progress: Mutex<Progress<T>>,
}

struct Progress<T> {
    /// The place the thread is at, by its position in the chunk.
    at: usize,
    /// The thread hangs there and is not waited for any more.
    is_given_up: bool,
    done: Vec<(usize, Result<T, ReadError>)>,
}

impl<T> Chunk<T> {
    fn new(places: Vec<(usize, Arc<str>)>) -> Self {
        let progress =
            Progress { at: 0, is_given_up: false, done: Vec::with_capacity(places.len()) };
        Chunk { places, progress: Mutex::new(progress) }
    }

    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Root {
    /// Does work on the files of one place (a zonepath, or a file outside any zone).
    /// Errors: the place hangs.
    pub async fn on_files<T: Send + 'static>(
        &self,
        place: &str,
        work: impl Fn(&Root) -> T + Send + Sync + 'static,
    ) -> Result<T, ReadError> {
        let chunk = vec![(0, Arc::from(place))];
        let mut done = self.chunk(chunk, Arc::new(move |root: &Root, _| work(root))).await;
        done.pop().map_or(Err(ReadError::Hangs), |(_, result)| result)
    }

    /// Does the work for each of these places, by its number; a few threads at once. The results
    /// are in the order of the places.
    pub async fn on_each<T: Send + 'static>(
        &self,
        places: Vec<Arc<str>>,
        at_once: usize,
        work: impl Fn(&Root, usize) -> T + Send + Sync + 'static,
    ) -> Vec<Result<T, ReadError>> {
        let work = Arc::new(work);
        let count = places.len();
        let places: Vec<(usize, Arc<str>)> = places.into_iter().enumerate().collect();
        let chunks: Vec<Vec<_>> = places.chunks(CHUNK).map(<[_]>::to_vec).collect();
        let chunks = chunks.into_iter().map(|chunk| self.chunk(chunk, Arc::clone(&work)));
        let mut all: Vec<Result<T, ReadError>> =
            (0..count).map(|_| Err(ReadError::Hangs)).collect();
        let mut results = stream::iter(chunks).buffer_unordered(at_once.max(1));
        while let Some(done) = results.next().await {
            for (at, result) in done {
                if let Some(slot) = all.get_mut(at) {
                    *slot = result;
                }
            }
        }
        all
    }

    /// Works through one chunk; a place that hangs fails, and another thread goes on after it.
    async fn chunk<T: Send + 'static>(
        &self,
        mut places: Vec<(usize, Arc<str>)>,
        work: Arc<impl Fn(&Root, usize) -> T + Send + Sync + 'static>,
    ) -> Vec<(usize, Result<T, ReadError>)> {
        let mut all = Vec::with_capacity(places.len());
        loop {
            let (hung, rest) = places.into_iter().partition(|(_, place)| self.hung().has(place));
            let hung: Vec<(usize, Arc<str>)> = hung;
            all.extend(hung.into_iter().map(|(nth, _)| (nth, Err(ReadError::Hangs))));
            places = rest;
            if places.is_empty() {
                return all;
            }
            let chunk = Arc::new(Chunk::new(places));
            let stuck = self.run(&chunk, Arc::clone(&work)).await;
            all.append(&mut chunk.lock().done);
            let Some(stuck) = stuck else { return all };
            let nth = chunk.places.get(stuck).map_or(0, |(nth, _)| *nth);
            all.push((nth, Err(ReadError::Deadline(self.deadline()))));
            places = chunk.places.get(stuck + 1..).unwrap_or_default().to_vec();
        }
    }

    /// Runs a chunk in a thread; returns the number of the place it hangs in.
    async fn run<T: Send + 'static>(
        &self,
        chunk: &Arc<Chunk<T>>,
        work: Arc<impl Fn(&Root, usize) -> T + Send + Sync + 'static>,
    ) -> Option<usize> {
        let (root, own) = (self.clone(), Arc::clone(chunk));
        let mut thread = tokio::task::spawn_blocking(move || {
            for (nth, place) in &own.places {
                let result = caught(|| work(&root, *nth));
                let mut progress = own.lock();
                if progress.is_given_up {
                    drop(progress);
                    root.hung().leave(place);
                    return;
                }
                progress.done.push((*nth, result));
                progress.at += 1;
            }
        });
        let mut before = 0;
        loop {
            if timeout(self.deadline(), &mut thread).await.is_ok() {
                return None;
            }
            let mut progress = chunk.lock();
            let Some((_, place)) = chunk.places.get(progress.at) else { continue };
            // Other places of the chunk may have taken the time: only one that was not left hangs.
            if progress.at == before {
                progress.is_given_up = true;
                self.hung().enter(place);
                return Some(before);
            }
            before = progress.at;
        }
    }
}

/// Runs the work; a panic is a failed reading.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, ReadError> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.map_err(|_| ReadError::io(std::io::Error::other("the reading panicked")))
}

/// How many threads a first load or a sweep uses at once.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::node::hung::HUNG_PER_POOL;

    fn root(deadline: u64) -> Root {
        Root::new("/").with_deadline(Duration::from_millis(deadline))
    }

    fn places(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|nth| format!("/zones/{nth}").into()).collect()
    }

    #[tokio::test]
    async fn results_keep_the_order_of_the_places() {
        for count in [0, 1, CHUNK, 3 * CHUNK + 1] {
            let done = root(10_000).on_each(places(count), 4, |_, nth| nth).await;
            assert_eq!(
                done.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
                Vec::from_iter(0..count)
            );
        }
    }

    #[tokio::test]
    async fn hung_place_fails_alone_until_it_answers() {
        let root = root(50);
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Mutex::new(stuck);
        let done = root.on_each(places(100), 2, move |_, nth| {
            if nth == 40 {
                let _released = stuck.lock().unwrap().recv();
            }
            nth
        });
        for (nth, result) in done.await.into_iter().enumerate() {
            assert_eq!(result.is_err(), nth == 40, "{nth}");
        }
        assert!(root.on_files("/zones/40", |_| ()).await.is_err(), "it fails at once");
        assert!(root.on_files("/zones/41", |_| ()).await.is_ok());
        drop(release);
        while root.on_files("/zones/40", |_| ()).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn hung_pool_uses_a_limited_number_of_threads() {
        let root = root(10);
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        for nth in 0..HUNG_PER_POOL {
            let stuck = Arc::clone(&stuck);
            let work = move |_: &Root| drop(stuck.lock().map(|it| it.recv()));
            assert!(root.on_files(&format!("/zones/{nth}"), work).await.is_err());
        }
        assert!(matches!(root.on_files("/zones/more", |_| ()).await, Err(ReadError::Hangs)));
        assert!(root.on_files("/tank/x", |_| ()).await.is_ok());
        drop(release);
    }

    #[tokio::test]
    async fn panic_is_a_failed_reading() {
        let done = root(10_000).on_each(places(3), 1, |_, nth| assert_ne!(nth, 1)).await;
        assert_eq!(done.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    }
}
