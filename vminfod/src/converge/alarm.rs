// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Wakes the loop at a moment exactly. The runtime's timers count in milliseconds and are up to two
//! of them late, which is more than all else that happens to a file's change after its fold. So the
//! system's own timer (`timerfd_create(3C)`) is among what the runtime waits for anyway.
//!
//! Only a hint: what is due is decided by the runtime's clock alone, whoever woke the loop. So a
//! loop without an alarm does the same, a little later; simulated time has none.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// How long before a moment to be awake: a processor that sleeps needs a while to wake up.
const AHEAD: Duration = Duration::from_micros(100);

/// How the loop waits for its next deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: any sleep would be too long.
    Awake,
    /// With the alarm set to this.
    Alarm(Instant),
    /// With the runtime's timer.
    Timer,
}

impl Wait {
    /// For a deadline, in a turn of the loop that `began` then; `exact`: how far off a deadline may
    /// be for an alarm to be worth while.
    pub fn until(deadline: Instant, began: Instant, now: Instant, exact: Duration) -> Self {
        match deadline.saturating_duration_since(now) {
            // It passed during the turn, after what is due was looked for. What was due before and
            // still is, waits for something else than the time.
            Duration::ZERO if deadline >= began => Self::Awake,
            Duration::ZERO => Self::Timer,
            left if left <= AHEAD => Self::Awake,
            left if left <= exact => Self::Alarm(deadline - AHEAD),
            _ => Self::Timer,
        }
    }
}

/// Waits for one moment at a time.
#[derive(Debug)]
pub struct Alarm(Option<AsyncFd<OwnedFd>>);

impl Alarm {
    /// No alarm: the runtime's timers have to do.
    pub fn none() -> Self {
        Self(None)
    }

    /// One that rings, in a runtime; none where the system gives no timer.
    pub fn start() -> Self {
        match timer() {
            Ok(timer) => Self(Some(timer)),
            Err(error) => {
                tracing::warn!(%error, "no timer for exact times: changes are told up to 2 ms later");
                Self::none()
            }
        }
    }

    /// Is time simulated, or are there no exact times?
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Rings at this moment, and no more at any that was asked for before.
    pub fn set(&self, at: Instant) {
        let Some(timer) = &self.0 else { return };
        // Zero would mean never.
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let Ok(it_value) = Timespec::try_from(left) else { return };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        if let Err(error) = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once) {
            tracing::debug!(%error, "alarm not set");
        }
    }

    /// Waits until it rings. Cancel-safe: a ring that nobody waits for is kept.
    pub async fn rings(&self) {
        if let Some(timer) = &self.0 {
            let rung = |timer: &OwnedFd| Ok(rustix::io::read(timer, &mut [0; 8])?);
            match timer.async_io(Interest::READABLE, rung).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "alarm not heard"),
            }
        }
        std::future::pending().await
    }
}

#[allow(unsafe_code)]
fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    // SAFETY: the descriptor is open and nobody else's, and stays what it is until it is dropped,
    // together with its registration.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn sleeps_only_for_what_is_far_enough_off() {
        let (began, us) = (Instant::now(), Duration::from_micros);
        let (now, exact) = (began + us(50), us(10_000));
        for (deadline, wait) in [
            (began - us(1), Wait::Timer),
            (began, Wait::Awake),
            (began + us(50), Wait::Awake),
            (now + AHEAD, Wait::Awake),
            (now + AHEAD + us(1), Wait::Alarm(now + us(1))),
            (now + exact, Wait::Alarm(now + exact - AHEAD)),
            (now + exact + us(1), Wait::Timer),
        ] {
            let off = deadline - began;
            assert_eq!(
                Wait::until(deadline, began, now, exact),
                wait,
                "{off:?} after the turn began"
            );
        }
    }

    #[tokio::test]
    async fn rings_at_the_moment_that_was_asked_for_last_and_not_before() {
        let alarm = Alarm::start();
        let began = Instant::now();
        alarm.set(began + Duration::from_secs(3600));
        alarm.set(began + Duration::from_millis(3));
        alarm.rings().await;
        assert!(began.elapsed() >= Duration::from_millis(3));
        // What is past already.
        alarm.set(Instant::now() + Duration::from_secs(3600));
        alarm.set(began);
        alarm.rings().await;
    }

    #[tokio::test]
    async fn a_ring_is_heard_once() {
        let alarm = Alarm::start();
        alarm.set(Instant::now());
        alarm.rings().await;
        assert_eq!(alarm.rings().now_or_never(), None);
        alarm.set(Instant::now());
        alarm.rings().await;
    }
}
