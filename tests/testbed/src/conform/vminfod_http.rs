// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vminfod-http FILE`: recorded bytes over a real socket to the whole daemon on
//! the recorded node. A case passes when it equals what one of the two recorded runtimes answered.

mod compare;
mod request;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use indexmap::IndexMap;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::compare::{Reply, difference};
use super::asked::Asked;
use super::deviations::{Judged, Ledger};
use super::reply;
use super::tally::{Tally, no_flags};
use super::vminfod_events::node::RecordedNode;
use super::vminfod_events::{base_of, records};

/// The name of the recording in a directory of fixtures.
pub(super) const FILE: &str = "vminfod-http.jsonl";
/// Connections at once.
const AT_ONCE: usize = 16;
/// A server that says nothing more for this long is done, unless it is expected to close.
const QUIET: Duration = Duration::from_millis(300);
/// An expected close comes within this.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Between the writes of a request that was sent in parts.
const BETWEEN_WRITES: Duration = Duration::from_millis(20);

/// Compares with the recording at `path`, a file or a directory that has one.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    no_flags(flags)?;
    let records = records(path, FILE)?;
    let (base, exchanges) = base_of(&records)?;
    // The same bytes were sent to each runtime.
    let mut cases: IndexMap<String, Vec<&Value>> = IndexMap::new();
    for exchange in exchanges {
        let name = exchange["name"].as_str().unwrap_or("?");
        cases.entry(format!("{name} | {}", exchange["request"])).or_default().push(exchange);
    }
    let ledger = Ledger::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let served = RecordedNode::new(base)?.serve().await?;
        let address = served.address;
        futures_util::stream::iter(&cases)
            .for_each_concurrent(AT_ONCE, |(_, recorded)| ask(address, recorded, &ledger))
            .await;
        served.stop().await
    })?;
    Ok(ledger.tally())
}

/// Sends one recorded request and enters how the answer compares.
async fn ask(address: SocketAddr, recorded: &[&Value], ledger: &Ledger) {
    let name = recorded.first().and_then(|one| one["name"].as_str()).unwrap_or("?");
    let judged = match exchange(address, recorded).await {
        Err(error) => Judged::Differs(format!("{error:#}")),
        Ok((text, reply)) => {
            let status = reply.responses.first().map(|response| response.status);
            let asked = Asked { text, status };
            let path = asked.path().to_owned();
            let differing: Vec<String> = recorded
                .iter()
                .filter_map(|one| {
                    let what = difference(one, &reply, &path)?;
                    Some(format!("node {}: {what}", one["node"].as_str().unwrap_or("?")))
                })
                .collect();
            let differs = (differing.len() == recorded.len()).then(|| differing.join("\n  "));
            ledger.judge_answer(&asked, differs)
        }
    };
    ledger.enter(name, judged);
}

async fn exchange(address: SocketAddr, recorded: &[&Value]) -> anyhow::Result<(String, Reply)> {
    let Some(first) = recorded.first() else { anyhow::bail!("nothing was recorded") };
    let writes = request::writes(&first["request"])?;
    let text: String = writes.iter().flatten().map(|byte| char::from(*byte)).collect();
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    for (nth, bytes) in writes.iter().enumerate() {
        if nth > 0 {
            tokio::time::sleep(BETWEEN_WRITES).await; // so that they arrive apart, as recorded
        }
        // A server may refuse before it has read all: what it says is read below.
        let _refused = socket.write_all(bytes).await;
    }
    if first["client_half_closes"] == true {
        socket.shutdown().await?;
    }
    let may_close = recorded.iter().any(|one| !one["server_closed"].is_null());
    let (bytes, closed) = read_all(&mut socket, may_close).await;
    let heads: Vec<bool> = text
        .split("\r\n")
        .filter(|line| line.contains(" HTTP/"))
        .map(|line| line.starts_with("HEAD "))
        .collect();
    let responses = reply::responses(&bytes, &heads, closed).map_err(anyhow::Error::msg)?;
    Ok((text, Reply { responses, closed }))
}

/// Everything the server says until it closes or is quiet.
async fn read_all(socket: &mut TcpStream, may_close: bool) -> (Vec<u8>, bool) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        // Before its first word a busy server may take longer.
        let limit = if may_close || bytes.is_empty() { CLOSE_LIMIT } else { QUIET };
        match tokio::time::timeout(limit, socket.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return (bytes, true),
            Ok(Ok(count)) => bytes.extend_from_slice(&buffer[..count]),
            Err(_) => return (bytes, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_requests_are_answered_alike() {
        let dir = recordings::unpacked().unwrap();
        let tally = check(dir.path(), &[]).unwrap();
        assert_eq!((tally.failures, tally.passed), (Vec::new(), 106));
    }
}
