// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Other processes that answer under an instance's name, and how processes are told apart.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock;
use crate::dial::{Connection, Turn, once};
use crate::qmp::Peer;
use crate::session::{Session, Stage};

/// How long a process that answers under an old name has to greet.
pub(super) const SUCCESSOR: Duration = Duration::from_secs(1);
/// Clock ticks per second in `/proc/PID/stat`.
const USER_HZ: u64 = 100;

/// A connection whose other end has greeted.
pub(super) type Met = (Connection, Session);

/// Returns the connection to another QEMU that answers under the name. A QEMU serves one client at a
/// time, so a greeting while the old connection lives comes from another one.
pub(super) async fn rival(socket: PathBuf, served_by: Option<Peer>, clock: Clock) -> Option<Met> {
    let connection = once(&socket).await.ok()?;
    if is_told(served_by) && served_by == connection.peer {
        return None;
    }
    timeout(SUCCESSOR, greeting(connection, clock)).await.ok().flatten()
}

/// Reads until the other end has greeted; `None` if it ends before.
pub(super) async fn greeting(mut connection: Connection, clock: Clock) -> Option<Met> {
    let mut session = Session::default();
    loop {
        connection.readable().await;
        let turn = connection.read(|line| drop(session.line(clock.now(), &line)));
        if session.stage > Stage::AwaitGreeting {
            return Some((connection, session));
        }
        if turn == Turn::Ended {
            return None;
        }
    }
}

/// Returns true if the process can be told from others; this process itself (in tests) cannot.
pub(super) fn is_told(peer: Option<Peer>) -> bool {
    peer.is_some_and(|peer| peer.start.is_some() && peer.pid != std::process::id() as i32)
}

/// Returns true if the process started more than `age` before `now`.
pub(super) fn is_older(peer: Option<Peer>, now: Duration, age: Duration) -> bool {
    let Some(start) = peer.filter(|peer| is_told(Some(*peer))).and_then(|peer| peer.start) else {
        return false;
    };
    let started = Duration::from_millis(start.saturating_mul(1000) / USER_HZ);
    now.saturating_sub(started) > age
}
