// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads the daemon's event stream line by line. It does not reconnect: the shipped tools end with
//! the stream.

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
    #[error(transparent)]
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

/// Follows the stream of `call` to its end. Each line is formatted by `print` and written at once.
pub async fn follow(
    daemon: &FromDaemon,
    call: Call,
    print: &mut (dyn FnMut(&[u8]) -> Result<String, EventFault> + Send),
    write: &mut (dyn FnMut(&str) -> io::Result<()> + Send),
) -> StreamEnd {
    match lines(daemon, call, print, write).await {
        Ok(()) => StreamEnd::Ended,
        Err(end) => end,
    }
}

/// The call for all events.
pub fn events() -> Call {
    Call::get(&["events"]).timeout(READY_LIMIT)
}

async fn lines(
    daemon: &FromDaemon,
    call: Call,
    print: &mut (dyn FnMut(&[u8]) -> Result<String, EventFault> + Send),
    write: &mut (dyn FnMut(&str) -> io::Result<()> + Send),
) -> Result<(), StreamEnd> {
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
        let Some(piece) = piece else { return Ok(()) };
        let piece = piece.map_err(|error| StreamEnd::Broken(daemon::log::chain(&error)))?;
        lines.push(&piece);
        while let Some(line) =
            lines.next_line().map_err(|error| StreamEnd::Broken(error.to_string()))?
        {
            is_ready = true;
            let text = print(&line)?;
            if !text.is_empty() {
                write(&text)?;
            }
        }
    }
}
