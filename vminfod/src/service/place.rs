// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Checks whether the daemon may run here: on illumos with the real root directory only as root in the
//! global zone, because in a zone zoneadm lists that zone alone. Elsewhere it always may.

use std::path::Path;
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Program};

/// How long zoneadm may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Why it may not run here.
#[derive(Debug, thiserror::Error)]
pub enum Misplaced {
    /// Not root.
    #[error("must run as root (effective user is {0})")]
    User(u32),
    /// In a zone.
    #[error("must run in the global zone")]
    Zone,
    /// zoneadm failed.
    #[error("cannot tell in which zone it runs: {0}")]
    Unknown(#[from] CommandError),
}

/// Checks a system and the user who runs the daemon there.
/// Errors: it may not run there.
pub async fn check_on(
    system: &str,
    root: &Path,
    user: u32,
    commands: &dyn Commands,
) -> Result<(), Misplaced> {
    if system != "illumos" || root != Path::new("/") {
        return Ok(());
    }
    if user != 0 {
        return Err(Misplaced::User(user));
    }
    // In a zone, zoneadm lists that zone alone.
    let args = ["list", "-p"].map(str::to_owned).to_vec();
    let listed = commands.run(Call::new(Program::Zoneadm, args, LIMIT)).await?;
    let text = String::from_utf8_lossy(&listed.stdout);
    let global = text.lines().any(|line| line.split(':').nth(1) == Some("global"));
    if global { Ok(()) } else { Err(Misplaced::Zone) }
}
