// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Programs of the system.

use std::path::Path;
use std::time::Duration;

/// Between two tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// So often a daemon is asked whether it is ready: 30 seconds, on a busy machine.
pub(crate) const STARTS: usize = 1500;

/// Returns true if there is such a program.
pub(crate) fn is_installed(tool: &str) -> bool {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    places.iter().any(|dir| Path::new(dir).join(tool).exists())
}
