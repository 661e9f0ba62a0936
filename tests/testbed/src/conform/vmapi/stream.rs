// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A streamed answer, read line by line while other requests are sent.

use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use serde_json::Value;

use super::compare::Memory;
use super::front::Front;
use super::jobs;
use crate::conform::transcript::{Exchange, Streamed, Timed};
use crate::conform::wire::exchange;

/// A line that is to come comes within this.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The head of a streamed answer, and its lines until it ended.
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) kind: String,
    pub(super) lines: Vec<Value>,
}

/// Sends the request, and each of the others once the lines have come that were recorded before it.
pub(super) async fn watch(
    Front { addr, service, .. }: &Front,
    one: &Exchange,
    memory: &Memory,
) -> anyhow::Result<Got> {
    let asked = memory.translated(&one.request);
    let url = format!("http://{addr}{}?{}", asked.path, asked.query);
    let answer = reqwest::Client::builder().no_proxy().build()?.get(url).send().await?;
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    let mut got = Got {
        status: answer.status().as_u16(),
        kind: kind.unwrap_or_default().to_owned(),
        lines: Vec::new(),
    };
    let mut pieces = answer.bytes_stream();
    let mut rest = Vec::new();
    let recorded: &[Timed<Streamed>] = one.response.stream.as_deref().unwrap_or_default();
    let mut others = asked.meanwhile.iter();
    loop {
        let other = others.next();
        let before = |line: &&Timed<Streamed>| other.is_none_or(|other| line.ms < other.ms);
        let count = recorded.iter().filter(before).count();
        while other.is_none() || got.lines.len() < count {
            let piece = match tokio::time::timeout(PATIENCE, pieces.next()).await {
                Err(_) if other.is_some() => break,
                Err(_) => bail!("{}: the answer does not end", one.id),
                Ok(None) => return Ok(got),
                Ok(Some(piece)) => piece?,
            };
            rest.extend_from_slice(&piece);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                got.lines.push(serde_json::from_slice(&line).context("a line of a watch")?);
            }
        }
        if let Some(other) = other {
            let mut asked = memory.translated(&other.what);
            asked.headers.insert("content-type".to_owned(), "application/json".to_owned());
            if jobs::written(service, &asked).await? {
                continue;
            }
            let done = exchange(*addr, &asked).await?;
            let status = done.map(|done| done.status);
            anyhow::ensure!(status == Some(200), "{}: {status:?} for {:?}", one.id, other.what);
        }
    }
}
