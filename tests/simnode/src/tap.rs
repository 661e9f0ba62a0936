// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's sysevents inside this process, as `sysevent` would print them, in order. A tap keeps
//! every event until it is taken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The two streams that programs follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The channel `com.sun:zones:status`.
    Zones,
    /// Class `EC_zfs`, subclass `ESC_ZFS_history_event`.
    Zfs,
    /// A stream without events.
    Silent,
}

/// One event as `sysevent -j` prints it, without the newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The stream that it was posted to.
    pub stream: Stream,
    pub line: String,
}

/// A listener to everything that one [`Node`](crate::Node) value and its clones post.
#[derive(Clone, Debug, Default)]
pub struct Tap {
    queue: Arc<Mutex<VecDeque<Printed>>>,
    news: Arc<Notify>,
}

impl Tap {
    pub(crate) fn push(&self, stream: Stream, line: String) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(Printed { stream, line });
        drop(queue);
        self.news.notify_one();
    }

    /// Everything posted since the last call.
    pub fn take(&self) -> Vec<Printed> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Waits until something may have been posted. Cancel-safe.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}
