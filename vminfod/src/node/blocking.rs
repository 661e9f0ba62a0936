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
use tokio::task::JoinError;
use tokio::time::timeout;

use super::root::{ReadError, Root};

/// The fewest places that one thread works on, one after another: a thread per place costs more than the work.
const CHUNK: usize = 32;
/// The pieces of work for each thread of many: enough that none is idle while another has much left, few enough
/// that waking threads costs little beside the work.
const SHARES: usize = 4;

/// A place, and its number.
type Place = (usize, Arc<str>);
type Results<T> = Vec<(usize, Result<T, ReadError>)>;

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
        let places: Vec<Place> = places.into_iter().enumerate().collect();
        let at_once = at_once.max(1);
        let chunk = places.len().div_ceil(at_once.saturating_mul(SHARES)).max(CHUNK);
        let chunks: Vec<Vec<Place>> = places.chunks(chunk).map(<[_]>::to_vec).collect();
        let chunks = chunks.into_iter().map(|chunk| self.chunk(chunk, Arc::clone(&work)));
        let done: Vec<_> = stream::iter(chunks).buffer_unordered(at_once).collect().await;
        let mut all: Results<T> = done.into_iter().flatten().collect();
        all.sort_by_key(|(nth, _)| *nth);
        all.into_iter().map(|(_, result)| result).collect()
    }

    /// Works through one chunk; a place that hangs fails, and another thread goes on after it.
    async fn chunk<T: Send + 'static>(
        &self,
        mut places: Vec<Place>,
        work: Arc<impl Fn(&Root, usize) -> T + Send + Sync + 'static>,
    ) -> Results<T> {
        let mut all = Vec::with_capacity(places.len());
        loop {
            let (hung, free): (Vec<Place>, Vec<Place>) =
                places.into_iter().partition(|(_, place)| self.hung().has(place));
            all.extend(hung.into_iter().map(|(nth, _)| (nth, Err(ReadError::Hangs))));
            if free.is_empty() {
                return all;
            }
            let free: Arc<[Place]> = free.into();
            let done = self.run(&free, Arc::clone(&work)).await;
            let mut rest = free.iter().skip(done.len());
            all.extend(done);
            let stuck =
                rest.next().map(|(nth, _)| (*nth, Err(ReadError::Deadline(self.deadline()))));
            all.extend(stuck);
            places = rest.cloned().collect();
        }
    }

    /// Works in a thread; returns the results before the place in which it hangs.
    async fn run<T: Send + 'static>(
        &self,
        places: &Arc<[Place]>,
        work: Arc<impl Fn(&Root, usize) -> T + Send + Sync + 'static>,
    ) -> Results<T> {
        // `None` once the thread is given up.
        let done: Arc<Mutex<Option<Results<T>>>> = Arc::new(Mutex::new(Some(Vec::new())));
        let (root, own, results) = (self.clone(), Arc::clone(places), Arc::clone(&done));
        let mut thread = tokio::task::spawn_blocking(move || {
            for (nth, place) in own.iter() {
                let result = caught(|| work(&root, *nth));
                match &mut *lock(&results) {
                    Some(done) => done.push((*nth, result)),
                    None => return root.hung().leave(place),
                }
            }
        });
        let mut before = 0;
        loop {
            let has_ended = timeout(self.deadline(), &mut thread).await.is_ok();
            let mut done = lock(&done);
            let count = done.as_ref().map_or(0, Vec::len);
            // Other places of the chunk may have taken the time: only one that was not left hangs.
            if has_ended || count == before {
                let stuck = places.get(count).filter(|_| !has_ended);
                stuck.into_iter().for_each(|(_, place)| self.hung().enter(place));
                return done.take().unwrap_or_default();
            }
            before = count;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the work with each item, in as many threads as there are processors; the results are in order.
/// A panic of the work is one of the caller.
pub async fn in_shares<I: Send + 'static, T: Send + 'static>(
    mut items: Vec<I>,
    work: impl Fn(I) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let work = Arc::new(work);
    let share = items.len().div_ceil(threads()).max(1);
    let mut shares = Vec::new();
    while !items.is_empty() {
        let rest = items.split_off(share.min(items.len()));
        let (own, work) = (std::mem::replace(&mut items, rest), Arc::clone(&work));
        shares.push(tokio::task::spawn_blocking(move || {
            own.into_iter().map(&*work).collect::<Vec<_>>()
        }));
    }
    let mut all = Vec::new();
    for share in shares {
        match share.await.map_err(JoinError::try_into_panic) {
            Ok(done) => all.extend(done),
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_ended)) => {}
        }
    }
    all
}

/// Runs the work; a panic is a failed reading.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, ReadError> {
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
        for count in [0, 1, CHUNK, 3 * CHUNK + 1, 5 * 4 * SHARES * CHUNK] {
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
