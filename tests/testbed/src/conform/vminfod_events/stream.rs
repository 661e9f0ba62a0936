// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A reader of `/events` that keeps every line as it came, key order included.

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
const LINE_CAP: usize = 64 << 20;

/// An open stream.
pub(crate) struct Stream {
    body: BoxStream<'static, Result<Bytes, Error>>,
    lines: Lines,
}

impl Stream {
    /// Opens `/events`; nothing is read yet.
    pub(crate) async fn open(http: &Http) -> anyhow::Result<Self> {
        let response = http.open(Call::get(&["events"])).await?;
        Ok(Self { body: response.body, lines: Lines::new(LINE_CAP) })
    }

    /// The next line; an error when the stream ends, breaks or sends nothing for `limit`.
    pub(crate) async fn next(&mut self, limit: Duration) -> anyhow::Result<Value> {
        match self.within(limit).await? {
            Some(line) => Ok(line),
            None => bail!("no event came within {limit:?}"),
        }
    }

    /// The next line; `None` when nothing comes for `limit`.
    pub(crate) async fn within(&mut self, limit: Duration) -> anyhow::Result<Option<Value>> {
        match tokio::time::timeout(limit, self.read()).await {
            Ok(line) => line.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Cancel-safe: what was read of a line stays in the buffer.
    async fn read(&mut self) -> anyhow::Result<Value> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                let text = String::from_utf8_lossy(&line).into_owned();
                return serde_json::from_slice(&line)
                    .with_context(|| format!("a line that is no JSON: {text:?}"));
            }
            match self.body.next().await {
                Some(piece) => self.lines.push(&piece?),
                None => bail!("the stream ended"),
            }
        }
    }
}
