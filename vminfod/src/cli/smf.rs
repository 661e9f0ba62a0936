// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon's state in the service manager: disabled, or starting.

use std::path::Path;
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands as _, Paths, Program, Spawned};

const FMRI: &str = "svc:/system/smartdc/vminfod:default";
/// How long `svcs` may take.
const LIMIT: Duration = Duration::from_secs(5);

/// State of the daemon's service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// There is no service manager here.
    Unmanaged,
    /// Disabled, in maintenance, or no such service: it will not start by itself.
    Off,
    /// Online or starting.
    Starting,
}

/// Asks `svcs(1)` at this path for the state of the daemon's service.
pub async fn service(svcs: &Path) -> Service {
    let commands = Spawned::new(Paths::default().with(Program::Svcs, svcs));
    let args = ["-H", "-o", "state", FMRI].map(str::to_owned).to_vec();
    match commands.run(Call::new(Program::Svcs, args, LIMIT)).await {
        Ok(output) => judge(output.status == 0, &output.stdout),
        Err(CommandError::Spawn { .. }) => Service::Unmanaged,
        // No answer does not mean disabled.
        Err(_) => Service::Starting,
    }
}

fn judge(success: bool, stdout: &[u8]) -> Service {
    let text = String::from_utf8_lossy(stdout);
    match text.trim() {
        _ if !success => Service::Off,
        "disabled" | "maintenance" | "uninitialized" | "" => Service::Off,
        // svcs marks a service in transition with an asterisk; that counts as starting.
        _ => Service::Starting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        for (success, stdout, service) in [
            (true, "disabled\n", Service::Off),
            (true, "maintenance\n", Service::Off),
            (true, "online\n", Service::Starting),
            (true, "offline*\n", Service::Starting),
            (true, "disabled*\n", Service::Starting),
            (true, "offline\n", Service::Starting),
            (false, "", Service::Off),
        ] {
            assert_eq!(judge(success, stdout.as_bytes()), service, "{stdout:?}");
        }
    }

    #[tokio::test]
    async fn no_manager_is_no_answer() {
        assert_eq!(service(Path::new("/nowhere/svcs")).await, Service::Unmanaged);
    }
}
