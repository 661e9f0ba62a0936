// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads the daemon's event stream line by line. It does not reconnect: the shipped tools end with
//! the stream.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use sdc_clients::http::Call;
use sdc_clients::vminfod::Lines;
use tokio::time::timeout;

use super::supply::{FromDaemon, SupplyError};
use super::vmadm::events::EventFault;

/// Deadline of the first line.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Longest line: the first one holds every VM.
const LINE_CAP: usize = 512 << 20;

/// Why the stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamEnd {
    /// It could not be opened.
    #[error("{0}")]
    Supply(#[from] SupplyError),
    /// A line that cannot be printed.
    #[error(transparent)]
    Fault(#[from] EventFault),
    /// The daemon ended it.
    #[error("the event stream ended")]
    Ended,
    /// The connection broke.
    #[error("the event stream broke: {0}")]
    Broken(String),
    /// The first line did not arrive.
    #[error("no ready event within {} s", READY_LIMIT.as_secs())]
    NotReady,
    /// Stdout cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl StreamEnd {
    /// Returns true if the reader of stdout went away, which is no failure.
    pub fn is_closed_stdout(&self) -> bool {
        matches!(self, StreamEnd::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The call for all events.
pub fn events() -> Call {
    Call::get(&["events"]).timeout(READY_LIMIT)
}

/// Gives each line of the stream of `call` to `show` at once, until the stream ends.
pub async fn follow(
    daemon: &FromDaemon,
    call: Call,
    show: &mut (dyn FnMut(&[u8]) -> Result<(), StreamEnd> + Send),
) -> Result<Infallible, StreamEnd> {
    let opened = daemon.open(call).await?;
    if opened.status.as_u16() != 200 {
        return Err(SupplyError::Status(opened.status.as_u16()).into());
    }
    let mut body = opened.body;
    let mut lines = Lines::new(LINE_CAP);
    let mut is_ready = false;
    loop {
        let piece = if is_ready {
            body.next().await
        } else {
            timeout(READY_LIMIT, body.next()).await.map_err(|_| StreamEnd::NotReady)?
        };
        let piece = piece.ok_or(StreamEnd::Ended)?;
        let piece = piece.map_err(|error| StreamEnd::Broken(daemon::log::chain(&error)))?;
        lines.push(&piece);
        while let Some(line) =
            lines.next_line().map_err(|error| StreamEnd::Broken(error.to_string()))?
        {
            is_ready = true;
            show(&line)?;
        }
    }
}
