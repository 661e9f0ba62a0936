// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The job behind a reservation: the VM may still come, or it will not.

use std::time::Duration;

/// A provisioning job that runs longer than this is stuck.
pub const STUCK: Duration = Duration::from_secs(2 * 3600);

/// What follows for the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing: the VM may still come.
    Leave,
    /// The VM's state decides.
    Look,
    /// A VM that is still being made counts as failed.
    Stuck,
}

/// Judges a job by its `execution` and its age; `age` is the reservation's where there is no job.
pub fn judge(execution: Option<&str>, age: Duration) -> Verdict {
    match execution {
        Some("executing" | "running") if age >= STUCK => Verdict::Stuck,
        None | Some("executing" | "running" | "queued" | "waiting") if age < STUCK => {
            Verdict::Leave
        }
        _ => Verdict::Look,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V32
    fn a_job_is_stuck_after_two_hours() {
        let hours = |n: u64| Duration::from_secs(n * 3600);
        for (execution, age, expected) in [
            (Some("executing"), hours(1), Verdict::Leave),
            (Some("executing"), hours(2), Verdict::Stuck),
            (Some("queued"), hours(1), Verdict::Leave),
            (Some("queued"), hours(3), Verdict::Look),
            (Some("succeeded"), hours(0), Verdict::Look),
            (Some("failed"), hours(0), Verdict::Look),
            (Some("canceled"), hours(0), Verdict::Look),
            (None, hours(1), Verdict::Leave),
            (None, hours(2), Verdict::Look),
        ] {
            assert_eq!(judge(execution, age), expected, "{execution:?} {age:?}");
        }
    }
}
