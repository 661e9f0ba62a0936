// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A stream of events, read line by line as it came, key order included.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sdc_clients::http::Call;
use sdc_clients::vminfod::Lines;
use sdc_clients::{Error, Http};
use serde_json::Value;

/// The longest line that is believed.
const LINE_CAP: usize = 256 << 20;

/// An open stream.
pub struct LineStream {
    body: BoxStream<'static, Result<Bytes, Error>>,
    lines: Lines,
}

impl LineStream {
    /// Opens `/events`; nothing is read yet.
    pub async fn events(http: &Http) -> Result<Self, Error> {
        Self::open(http, Call::get(&["events"])).await
    }

    /// Opens what the call asks for; nothing is read yet.
    pub async fn open(http: &Http, call: Call) -> Result<Self, Error> {
        let response = http.open(call).await?;
        Ok(Self { body: response.body, lines: Lines::new(LINE_CAP) })
    }

    /// The next line; an error when the stream ends, breaks or sends nothing for `limit`.
    pub async fn next(&mut self, limit: Duration) -> anyhow::Result<Value> {
        match self.within(limit).await? {
            Some(line) => Ok(line),
            None => bail!("no event came within {limit:?}"),
        }
    }

    /// The next line; `None` when nothing comes for `limit`.
    pub async fn within(&mut self, limit: Duration) -> anyhow::Result<Option<Value>> {
        let Ok(line) = tokio::time::timeout(limit, self.line()).await else { return Ok(None) };
        let line = line?;
        let no_json = || format!("a line that is no JSON: {:?}", String::from_utf8_lossy(&line));
        serde_json::from_slice(&line).with_context(no_json).map(Some)
    }

    /// The bytes of the next line. Cancel-safe: what was read of a line stays in the buffer.
    pub async fn line(&mut self) -> anyhow::Result<Bytes> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(line);
            }
            match self.body.next().await {
                Some(piece) => self.lines.push(&piece.context("the stream broke")?),
                None => bail!("the stream ended"),
            }
        }
    }
}
