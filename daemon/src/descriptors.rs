// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The limit of open files. A service starts with a soft limit of 256 or 1,024, below the number of
//! connections that it accepts. The limit is raised no further than needed: children inherit it, and
//! some programs close every descriptor they could have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides connections: sources, logs, the pipes of children.
const BESIDES: u64 = 1024;

/// Raises the soft limit as needed for so many connections, at most to the hard limit; returns the new
/// soft limit. Too low a limit is logged.
pub fn raise(connections: usize) -> u64 {
    let needed = (connections as u64).saturating_add(BESIDES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None: there is no limit.
    let (now, most) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let wanted = needed.min(most);
    if now < wanted {
        let limit = Rlimit { current: Some(wanted), maximum };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, wanted, "cannot raise the limit of open files; the old one stays");
        }
    }
    let got = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if got < needed {
        tracing::warn!(
            limit = got,
            needed,
            "the limit of open files is below what the allowed connections need: further ones have to wait; raise the \
             service's limit (process.max-file-descriptor)"
        );
    }
    got
}
