// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The followed sysevent streams of commands without processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::command::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::tap::Stream;

/// Capacity of a follower's pipe, in bytes.
const UNREAD: usize = 1 << 20;

/// The followers, one of each stream. Clones are the same.
#[derive(Clone, Default)]
pub struct Feeds(Arc<Mutex<HashMap<Stream, DuplexStream>>>);

impl Feeds {
    /// Starts a `sysevent` with these arguments. It is ready at once.
    pub fn follow(&self, args: &[String]) -> Running {
        let (near, far) = duplex(UNREAD);
        let (errors, _) = duplex(1);
        let stream = if args.iter().any(|arg| arg == "-c") { Stream::Zones } else { Stream::Zfs };
        self.pipes().insert(stream, far);
        let ready = AsyncReadExt::chain(&b"{\"date\":\"d\",\"type\":\"ready\"}\n"[..], near);
        Running::new(Box::new(ready), Box::new(errors), Box::pin(std::future::pending()))
    }

    /// Prints lines to the follower of a stream in one piece; returns false if there is none. Waits
    /// while its pipe is full.
    pub async fn feed(&self, stream: Stream, lines: &str) -> bool {
        let Some(mut pipe) = self.pipes().remove(&stream) else { return false };
        let written = pipe.write_all(lines.as_bytes()).await.is_ok();
        if written {
            // A follower that started meanwhile has its own pipe.
            self.pipes().entry(stream).or_insert(pipe);
        }
        written
    }

    /// Ends the follower of a stream, as if its process had died.
    pub fn cut(&self, stream: Stream) {
        self.pipes().remove(&stream);
    }

    fn pipes(&self) -> MutexGuard<'_, HashMap<Stream, DuplexStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
