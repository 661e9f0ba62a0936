// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A child and its children: one process group, which is killed as a whole.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::time::{Instant, sleep};

/// Between two looks whether the killed are gone.
const LOOKS: Duration = Duration::from_millis(2);
/// What takes longer to die than this is logged.
const DIES: Duration = Duration::from_secs(5);

/// A child that leads a process group of its own.
pub(super) struct Group {
    pub(super) child: Child,
}

impl Group {
    /// Waits for the leader and reaps it.
    pub(super) async fn status(&mut self) -> i32 {
        self.child.wait().await.map_or(-1, code)
    }

    /// Kills the group; returns when no process of it is left. The system may keep a process in a call that
    /// does not end, and then this does not return: what the process does when it comes back is not known.
    pub(super) async fn end(&mut self) {
        let Some(group) = self.leader() else { return };
        self.kill();
        self.status().await;
        // The id stays taken while a process of the group is left.
        let (began, mut is_logged) = (Instant::now(), false);
        while lives(group) {
            sleep(LOOKS).await;
            if !is_logged && began.elapsed() > DIES {
                is_logged = true;
                let group = group.as_raw_nonzero();
                tracing::warn!(group, "a killed process group has not ended; its caller waits");
            }
        }
    }

    /// None after the leader was reaped: another group may have its id by now.
    fn leader(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    fn kill(&self) {
        if let Some(leader) = self.leader() {
            // It fails only if no process is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns true if a process of the group is left.
fn lives(group: Pid) -> bool {
    test_kill_process_group(group).is_ok() && !(cfg!(target_os = "linux") && has_only_dead(group))
}

/// Returns true if all that is left waits to be reaped: a container may have no process that does that. Only
/// Linux shows it as text.
fn has_only_dead(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let group = group.as_raw_nonzero().to_string();
    !processes.flatten().any(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // The name before it may have any character.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let (state, _parent, of) = (fields.next(), fields.next(), fields.next());
        of == Some(&group) && !matches!(state, Some("Z" | "X"))
    })
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
