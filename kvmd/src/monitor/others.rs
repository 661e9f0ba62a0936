// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whoever else answers under an instance's name, and how processes are told apart.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::dial::{Connection, Turn, once};
use crate::qmp::Peer;
use crate::session::{Session, Stage};

/// How long whoever answers under an old name has to greet.
pub(super) const SUCCESSOR: Duration = Duration::from_secs(1);
/// Clock ticks a second, as Linux tells them to programs on every architecture we know.
const USER_HZ: u64 = 100;

/// A connection whose other end has greeted.
pub(super) type Met = (Connection, Session);

/// Does another QEMU answer under the name? One client is served at a time, so a greeting while
/// the old connection lives can only be another's.
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

pub(super) async fn finished(probe: &mut Option<JoinHandle<Option<Met>>>) -> Option<Met> {
    match probe {
        Some(task) => task.await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// Can this process be told from others? One that serves its own monitors (a test) cannot.
pub(super) fn is_told(peer: Option<Peer>) -> bool {
    peer.is_some_and(|peer| peer.start.is_some() && peer.pid != std::process::id() as i32)
}

/// Did the process start this long before `now`?
pub(super) fn is_older(peer: Option<Peer>, now: Duration, age: Duration) -> bool {
    let Some(start) = peer.filter(|peer| is_told(Some(*peer))).and_then(|peer| peer.start) else {
        return false;
    };
    let started = Duration::from_millis(start.saturating_mul(1000) / USER_HZ);
    now.saturating_sub(started) > age
}
