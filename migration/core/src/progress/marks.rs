// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How far an operation is when it gives an order, in percent.

use crate::intent::End;
use crate::machine::Step;
use crate::record::{Entry, Phase};

/// Returns the percentage and the message that an order of a phase stands for, as the deployed service has
/// them, if it is one that people see.
pub fn mark(phase: Phase, step: &Step) -> Option<(u64, &'static str)> {
    let mark = match (phase, step) {
        (Phase::Switch, Step::Stop(End::Source)) => (3, "stopping the instance"),
        (Phase::Switch, Step::BringOver) => (2, "bringing changed settings over"),
        (Phase::Switch, Step::Rehearse) => (2, "making sure that the rest can be done"),
        (Phase::Switch, Step::Reserve) => (60, "reserving the IP addresses"),
        (Phase::Switch, Step::Hide(End::Source)) => (75, "hiding the original instance"),
        (Phase::Switch, Step::Protect(..)) => (97, "restoring the protection against deletion"),
        (Phase::Switch, Step::MoveRecord(_)) => (80, "moving the instance's record"),
        (Phase::Switch, Step::Show(_)) => (85, "promoting the target instance"),
        (Phase::Switch, Step::Boot(_)) => (95, "starting the instance"),
        (Phase::Rollback, Step::Stop(End::Target)) => (3, "stopping the instance"),
        (Phase::Rollback, Step::Send { .. }) => (25, "sending the changes back"),
        (Phase::Rollback, Step::Show(_)) => (85, "restoring the original instance"),
        (Phase::Rollback, Step::Boot(_)) => (90, "starting the instance"),
        (Phase::Rollback, Step::Delete(_)) => (95, "removing the target instance"),
        (Phase::Abort, Step::Delete(_)) => (70, "removing the target instance"),
        _ => return None,
    };
    Some(mark)
}

/// Moves a running entry of the history on; it never goes back.
pub fn advance(entry: &mut Entry, (percent, message): (u64, &str)) {
    if entry.current_progress.is_none_or(|current| current < percent) {
        entry.current_progress = Some(percent);
        entry.message = Some(message.to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::samples::record;

    #[test] // R19
    fn an_entry_never_goes_back() {
        let entry = json!({"type": "progress", "phase": "switch", "state": "running", "current_progress": 1});
        let mut record = record(json!({"progress_history": [entry]}));
        let entry = record.progress_history.last_mut().unwrap();
        let mut seen = Vec::new();
        for step in [
            Step::Stop(End::Source),
            Step::Reserve,
            Step::Stop(End::Source), // repeated after a crash
            Step::Hide(End::Source),
        ] {
            advance(entry, mark(Phase::Switch, &step).unwrap());
            seen.push(entry.current_progress.unwrap());
        }
        assert_eq!(seen, [3, 60, 60, 75]);
        assert_eq!(entry.message.as_deref(), Some("hiding the original instance"));
        assert_eq!(mark(Phase::Sync, &Step::RestoreQuota(End::Source)), None);
        assert_eq!(mark(Phase::Rollback, &Step::Stop(End::Source)), None);
    }
}
