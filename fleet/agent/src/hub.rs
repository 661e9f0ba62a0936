// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod's snapshot, and its lines behind an event.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sdc_clients::fleet::Position;
use sdc_clients::http::Call;
use sdc_clients::vminfod::{Incomplete, LineTooLong, Lines, VmObject};
use sdc_clients::{Class, Error, Http};
use tokio::time::{Duration, timeout};

/// The longest event: vminfod's ring holds no longer one.
const LONGEST_LINE: usize = 64 << 20;
const LONGEST_LIST: usize = 256 << 20;
/// From the request to the first line.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Why vminfod did not tell what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The stream ended.
    #[error("vminfod's stream ended")]
    Ended,
    #[error("vminfod's stream: {0}")]
    Long(#[from] LineTooLong),
    /// It does not say at which event its snapshot is.
    #[error("vminfod's events have no seq: its version is too old")]
    Unnumbered,
    /// It begins elsewhere than was asked.
    #[error("vminfod's stream does not begin where it was asked to")]
    Elsewhere,
}

/// vminfod.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    http: Http,
}

/// The lines of a stream.
pub(crate) struct Following {
    body: BoxStream<'static, Result<Bytes, Error>>,
    lines: Lines,
}

impl Hub {
    pub(crate) fn new(http: Http) -> Self {
        Self { http: http.without_retries() }
    }

    /// Returns all VMs, the last event that they contain, and what could not be read.
    pub(crate) async fn snapshot(&self) -> Result<(Position, Vec<VmObject>, Incomplete), HubError> {
        let reply = self.http.execute(Call::get(&["vms"]).body_cap(LONGEST_LIST)).await?;
        let tag = reply.etag().ok_or(HubError::Unnumbered)?;
        let (epoch, seq) = tag.trim_matches('"').rsplit_once('-').ok_or(HubError::Unnumbered)?;
        let seq = seq.parse().map_err(|_| HubError::Unnumbered)?;
        let at = Position { epoch: epoch.to_owned(), seq };
        Ok((at, reply.json("a list of VMs")?, Incomplete::of(reply.headers())))
    }

    /// Opens the stream behind an event; none if vminfod does not have it any more.
    pub(crate) async fn behind(&self, at: &Position) -> Result<Option<Following>, HubError> {
        let call = Call::get(&["events"]).query("epoch", &at.epoch).query("since", at.seq);
        match self.http.open(call.timeout(BEGINS_WITHIN)).await {
            Ok(opened) => {
                let lines = Lines::new(LONGEST_LINE);
                Ok(Some(Following { body: opened.body, lines }))
            }
            Err(error) if error.class() == Class::Gone => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Following {
    /// Waits for the next line. Cancel-safe: what was received is kept.
    pub(crate) async fn next(&mut self) -> Result<Bytes, HubError> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(line);
            }
            let piece = self.body.next().await.ok_or(HubError::Ended)??;
            self.lines.push(&piece);
        }
    }

    /// Waits for the first line.
    pub(crate) async fn first(&mut self) -> Result<Bytes, HubError> {
        timeout(BEGINS_WITHIN, self.next()).await.map_err(|_| HubError::Ended)?
    }
}
