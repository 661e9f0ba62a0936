// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who leads, when a holder is stopped and when its store is held up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::{Call, Fault, Faults, Store};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const TERM: Duration = Duration::from_secs(15);
const SECOND: Duration = Duration::from_secs(1);

/// What is asked about leases fails, or is held up.
#[derive(Debug)]
struct Away(watch::Sender<Fault>);

impl Faults for Away {
    fn next(&self, call: Call) -> Fault {
        if call == Call::Lease { *self.0.borrow() } else { Fault::None }
    }

    fn held(&self, call: Call, is_done: bool) -> BoxFuture<'_, ()> {
        if call != Call::Lease || is_done {
            return Box::pin(std::future::ready(()));
        }
        async { drop(self.0.subscribe().wait_for(|fault| *fault != Fault::Never).await) }.boxed()
    }
}

fn away() -> Arc<Away> {
    Arc::new(Away(watch::Sender::new(Fault::None)))
}

/// An instance that counts the seconds in which it leads.
fn instance(store: Store, seconds: &Arc<AtomicUsize>) -> BoxFuture<'static, ()> {
    let seconds = Arc::clone(seconds);
    async move {
        let counted = || async {
            loop {
                seconds.fetch_add(1, Ordering::Relaxed);
                sleep(SECOND).await;
            }
        };
        store.lead("timers", TERM, |_| counted().boxed()).await;
    }
    .boxed()
}

fn take(seconds: &AtomicUsize) -> usize {
    seconds.swap(0, Ordering::Relaxed)
}

#[tokio::test(start_paused = true)] // M33
async fn nothing_is_asked_of_those_who_know_no_lease_once_it_may_be_elsewhere() {
    let (first, second) = (Arc::default(), Arc::default());
    let store = Store::in_memory().unwrap();
    let mut stopped = instance(store.clone(), &first);
    assert!(tokio::time::timeout(SECOND / 2, &mut stopped).await.is_err());
    let other = tokio::spawn(instance(store, &second));
    sleep(3 * TERM).await;
    assert_eq!((take(&first), take(&second) > 25), (1, true));
    // It is woken, and its timers are all due.
    assert!(stopped.as_mut().now_or_never().is_none());
    assert_eq!(take(&first), 0);
    assert!(tokio::time::timeout(TERM, &mut stopped).await.is_err());
    assert_eq!((take(&first), (14..=16).contains(&take(&second))), (0, true));
    // The other one is gone.
    other.abort();
    assert!(tokio::time::timeout(3 * TERM, stopped).await.is_err());
    assert!(take(&first) >= 10);
}

#[tokio::test(start_paused = true)] // M33, V141
async fn a_renewal_is_tried_again_until_the_term_ends() {
    for (fault, span, keeps) in [
        (Fault::Before, 9, true),
        (Fault::Never, 9, true),
        (Fault::After, 9, true),
        (Fault::Before, 40, false),
        (Fault::Never, 40, false),
    ] {
        let (seconds, faults) = (Arc::default(), away());
        let store = Store::in_memory().unwrap();
        let leads = tokio::spawn(instance(store.with_faults(faults.clone()), &seconds));
        sleep(TERM + SECOND / 2).await;
        faults.0.send_replace(fault);
        let began = Instant::now();
        take(&seconds);
        sleep(Duration::from_secs(span)).await;
        // The term runs from the last renewal, five seconds before at the most.
        let worked = take(&seconds);
        let expected = if keeps { 9..=9 } else { 10..=15 };
        assert!(expected.contains(&worked), "{fault:?} for {span} s: {worked} s");
        faults.0.send_replace(Fault::None);
        sleep(TERM).await;
        assert!(take(&seconds) >= 9, "{fault:?} for {span} s: {:?}", began.elapsed());
        leads.abort();
    }
}
