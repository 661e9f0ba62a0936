// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From a history to a verdict (C6–C10). Pure. `reason` is our rule; the shipped rule is three flags.

use std::time::Duration;

use crate::history::{Asker, Cause, History};
use crate::verdict::{Confidence, Initiator, Kind, Verdict};

/// How long a request to power off explains an end: the tools wait 180 s (SmartOS) or 120 s (Ganeti) for
/// the guest, plus a margin.
pub const ADMIN_WINDOW: Duration = Duration::from_secs(210);

use Confidence::{High, Low, Medium};
use Initiator::{Guest, Host, Unknown, Watchdog};

/// Applies the shipped rule (K6): SHUTDOWN seen, and neither POWERDOWN nor STOP ever.
pub fn user_by_shipped_rule(history: &History) -> bool {
    let words = history.words;
    words.shutdown && !words.powerdown && !words.stop
}

/// Applies our rule to a connection that ended at `at`; `negotiated` if events could come.
pub fn judge(history: &History, negotiated: bool, at: Duration, window: Duration) -> Verdict {
    if !negotiated {
        return Verdict::new(Unknown, Kind::Unwatched, Low).on("its monitor was never ours");
    }
    let past = Past { history, at, window };
    let mut verdict = match &history.shutdown {
        Some(cause) => past.with_word(cause),
        None => past.without_word(),
    };
    verdict.evidence = history.evidence.clone();
    if history.shutdown.is_none() {
        verdict.evidence.push("ended without SHUTDOWN".to_owned());
    }
    verdict
}

struct Past<'a> {
    history: &'a History,
    at: Duration,
    window: Duration,
}

impl Past<'_> {
    /// C6–C8.
    fn with_word(&self, cause: &Cause) -> Verdict {
        if let Some(earlier) = self.ended_earlier() {
            return earlier;
        }
        match (cause.reason.as_deref(), cause.guest) {
            (Some("host-signal"), _) => self.by_host(Kind::Signal, High),
            (Some("host-qmp-quit" | "host-ui"), _) => self.by_host(Kind::Quit, High),
            (Some("host-qmp-system-reset"), _) => Verdict::new(Host, Kind::Reset, High),
            (Some("host-error"), _) => Verdict::new(Host, Kind::Abrupt, High),
            (Some("guest-panic"), _) => Verdict::new(Guest, Kind::Panic, High),
            (Some("guest-reset" | "subsystem-reset"), _) => Verdict::new(Guest, Kind::Reset, High),
            (Some("guest-shutdown"), _) => self.guest_off(High),
            // An unknown reason, or none: `guest` still tells who asked.
            (_, Some(true)) => self.guest_off(Medium),
            (_, Some(false)) => self.by_host(Kind::Quit, Medium),
            (Some(reason), None) if reason.starts_with("host-") => self.by_host(Kind::Quit, Medium),
            (_, None) => self.bare(),
        }
    }

    /// C8: QEMU before 2.10 gives no cause.
    fn bare(&self) -> Verdict {
        if self.asked().is_none() && self.history.running == Some(false) {
            return self.by_host(Kind::Quit, Medium);
        }
        self.guest_off(Low)
    }

    /// C9.
    fn without_word(&self) -> Verdict {
        if let Some(earlier) = self.ended_earlier() {
            return earlier;
        }
        if self.history.migrated {
            return Verdict::new(Host, Kind::Migrated, Medium);
        }
        if matches!(self.history.watchdog.as_deref(), Some("poweroff" | "pause")) {
            return Verdict::new(Watchdog, Kind::Watchdog, High);
        }
        match self.asked() {
            Some(Asker::Watchdog) => Verdict::new(Watchdog, Kind::Watchdog, Medium),
            Some(Asker::Host) => Verdict::new(Host, Kind::KillAfterPowerdown, Medium),
            None => Verdict::new(Unknown, Kind::Abrupt, Low),
        }
    }

    /// The guest ended before its process: what ended the process tells nothing.
    fn ended_earlier(&self) -> Option<Verdict> {
        if self.history.panicked {
            return Some(Verdict::new(Guest, Kind::Panic, High));
        }
        self.history.ended_unseen.then(|| Verdict::new(Unknown, Kind::Poweroff, Low))
    }

    fn by_host(&self, kind: Kind, confidence: Confidence) -> Verdict {
        let kind = if self.history.migrated { Kind::Migrated } else { kind };
        Verdict::new(Host, kind, confidence)
    }

    /// The guest powered off, by itself or on request.
    fn guest_off(&self, confidence: Confidence) -> Verdict {
        match self.asked() {
            Some(Asker::Watchdog) => Verdict::new(Watchdog, Kind::Watchdog, confidence.max(Medium)),
            Some(Asker::Host) => Verdict::new(Host, Kind::Powerdown, confidence.max(Medium)),
            None => {
                let kind = if self.history.hibernating { Kind::Hibernate } else { Kind::Poweroff };
                // A request may have come while it was not watched (R2).
                let watched = self.history.watched_since.is_none_or(|since| self.is_old(since));
                Verdict::new(Guest, kind, if watched { confidence } else { Low })
            }
        }
    }

    /// Returns who asked it to power off recently enough to be the cause.
    fn asked(&self) -> Option<Asker> {
        self.history.pending.filter(|pending| !self.is_old(pending.at)).map(|pending| pending.by)
    }

    fn is_old(&self, then: Duration) -> bool {
        self.at.saturating_sub(then) > self.window
    }
}

#[cfg(test)]
mod tests;
