// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests for a fresh reading, from HTTP to the loop.

use tokio::sync::{mpsc, oneshot};

/// Who waits for a reading.
pub type Waiter = oneshot::Sender<Result<(), String>>;

/// How many requests may wait to be taken; more wait at the door.
const QUEUE: usize = 256;

/// A request for a reading that begins after it.
#[derive(Debug)]
pub struct SyncRequest {
    /// One VM, or the node.
    pub name: Option<String>,
    /// Told when what was read is committed, or which source failed.
    pub done: Waiter,
}

/// The asking side.
#[derive(Clone, Debug)]
pub struct Syncs(mpsc::Sender<SyncRequest>);

impl Syncs {
    /// The two sides.
    pub fn new() -> (Self, mpsc::Receiver<SyncRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Asks, and waits until it is done.
    pub async fn ask(&self, name: Option<&str>) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        let request = SyncRequest { name: name.map(str::to_owned), done };
        let stopping = || "vminfod is stopping".to_owned();
        self.0.send(request).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}
