// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Questions before something is done.

use std::time::Duration;

use daemon::cli::ask::{confirmed, is_answered};
use daemon::cli::screen::visible;
use daemon::cli::span;
use sdc_clients::migrations::Estimate;

use super::args::Consent;
use super::units;

/// What a no loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stake {
    /// It can be undone, and the shipped tool does not ask: scripts go on.
    Undoable,
    /// Data is lost: without a terminal it must be confirmed by -y.
    Data,
}

/// Returns true if there is a terminal to ask at, and it is not confirmed yet.
pub(super) fn is_asked(consent: Consent) -> bool {
    !consent.yes && is_answered()
}

/// Asks whether to go on. Returns true without asking if -y is given.
pub(super) fn confirm(text: &str, stake: Stake, consent: Consent) -> anyhow::Result<bool> {
    match stake {
        Stake::Undoable if !is_answered() => Ok(true),
        _ => confirmed(text, consent.yes),
    }
}

/// Returns `1aa41ab0 (web01)`.
pub(super) fn called(vm: &str, alias: Option<&str>) -> String {
    let short: String = vm.chars().take(8).collect();
    match alias.filter(|alias| !alias.is_empty()) {
        Some(alias) => format!("{short} ({})", visible(alias)),
        None => short,
    }
}

/// Returns what a migration takes, as a sentence.
pub(super) fn takes(what: &str, estimate: &Estimate) -> String {
    let total = span(Duration::from_secs(estimate.total_seconds));
    let down = match estimate.downtime_seconds {
        0 => "no".to_owned(),
        down => format!("{} of it", span(Duration::from_secs(down))),
    };
    let size = units::bytes(estimate.size_bytes);
    format!("{what} will take approximately {total}, {down} downtime, and move {size}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked() {
        assert_eq!(called("1aa41ab0-2046-4d53", Some("we\nb")), "1aa41ab0 (we\\u000ab)");
        assert_eq!(called("1aa41ab0-2046-4d53", Some("")), "1aa41ab0");
        let estimate = Estimate {
            total_seconds: 6300,
            downtime_seconds: 20,
            size_bytes: 12 << 30,
            ..Estimate::default()
        };
        assert_eq!(
            takes("The migration", &estimate),
            "The migration will take approximately 1h45m, 20s of it downtime, and move 12.0GiB."
        );
        let estimate = Estimate { downtime_seconds: 0, ..estimate };
        assert!(takes("It", &estimate).contains(" 1h45m, no downtime, and "));
    }
}
