// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How many files the process may have open. A service is started with a soft limit of 256 or
//! 1,024, which is far below the connections that its server is ready to hold. Must never lower a
//! limit, and never ask for more than is needed: children inherit it, and some programs close
//! every descriptor that they could have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a daemon has open besides its connections: sources, logs, the pipes of its children.
const BESIDES: u64 = 1024;

/// Raises the soft limit to what so many connections need, as far as the hard limit goes; what
/// the soft limit is then. That it is less than needed is logged, and no reason to end.
pub fn raise(connections: usize) -> u64 {
    let needed = (connections as u64).saturating_add(BESIDES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None: there is no limit.
    let (now, most) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let wanted = needed.min(most);
    if now < wanted {
        let limit = Rlimit { current: Some(wanted), maximum };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, wanted, "the limit of open files cannot be raised");
        }
    }
    let got = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if got < needed {
        tracing::warn!(limit = got, needed, "not enough open files for every connection allowed");
    }
    got
}
