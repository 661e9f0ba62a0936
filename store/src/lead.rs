// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The one way to lead: work that only one of several instances may do, while it holds the lease for sure.
//!
//! The store refuses the writes of one that was held up ([`Batch::require`](crate::Batch::require)). Other services
//! know no lease, so the work itself ends with the term, by the holder's own clock: it is looked at before each
//! poll of the work, and whatever asks another service is polled after it was last woken. So nothing is asked by
//! one that hangs in its database, or that was stopped and wakes.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use uuid::Uuid;

use crate::engine::Fence;
use crate::error::Error;
use crate::store::Store;

impl Store {
    /// Does the work whenever this instance holds the lease, which it claims for `term` and renews each third of
    /// it. Never returns; dropping it ends the work where it is, as the end of the term does. Work that ends by
    /// itself begins again while the lease is held.
    ///
    /// A renewal that fails, or is not answered within a third of the term, is tried again until the term ends.
    pub async fn lead<'a>(
        &self,
        lease: &str,
        term: Duration,
        mut work: impl FnMut(Fence) -> BoxFuture<'a, ()>,
    ) {
        let holder = Uuid::new_v4().to_string();
        let claim = || async {
            // The term runs from before the store knows of it.
            let until = Instant::now() + term;
            let claimed = timeout(term / 3, self.claim(lease, &holder, term)).await;
            (until, claimed.unwrap_or_else(|_| Err(Error::Unavailable { why: "no answer".into() })))
        };
        loop {
            match claim().await {
                (until, Ok(Some(fence))) => {
                    tracing::info!(lease, number = fence.number(), "this instance holds the lease");
                    held(until, term, &fence, claim, work(fence.clone())).await;
                    tracing::warn!(lease, "this instance lost the lease; another may lead");
                }
                (_, Ok(None)) => {}
                (_, Err(error)) => {
                    tracing::warn!(lease, %error, "cannot claim the lease; trying again")
                }
            }
            sleep(term / 3).await;
        }
    }
}

/// Works until the work ends, the lease is another's, or the term ends.
async fn held<C>(
    mut until: Instant,
    term: Duration,
    fence: &Fence,
    claim: impl Fn() -> C,
    mut work: BoxFuture<'_, ()>,
) where
    C: Future<Output = (Instant, Result<Option<Fence>, Error>)>,
{
    let mut pause = term / 3;
    loop {
        let mut end = pin!(sleep_until(until));
        // The arm that is dropped has no claim of which the answer is known.
        let (renewed, claimed) = tokio::select! {
            biased;
            () = poll_fn(|cx| over(until, end.as_mut(), cx)) => return,
            renewed = async { sleep(pause).await; claim().await } => renewed,
            () = &mut work => return,
        };
        match claimed {
            Ok(Some(now)) if now == *fence => (until, pause) = (renewed, term / 3),
            Ok(_) => return,
            Err(error) => {
                pause = term / 15;
                tracing::warn!(lease = fence.lease, %error, "cannot renew the lease; trying again until its term ends");
            }
        }
    }
}

/// Is over when the clock says so, though the timer has not yet been told.
fn over(until: Instant, end: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    if Instant::now() >= until { Poll::Ready(()) } else { end.poll(cx) }
}
