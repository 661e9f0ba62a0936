// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock NAPI's own speed: the cost of a request must not grow with the NICs of other nodes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::Instant;

use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use mocks::napi::{NewNic, Options, Server};

const AGENTS: usize = 10_000;
const NICS_EACH: usize = 12;
/// The same with a hundredth of the agents.
const FEW_AGENTS: usize = 100;
/// A day of agents has to fit into a test: each lists once and reads or writes a few NICs.
const LEAST_PER_SECOND: f64 = 1000.0;
const REQUESTS: usize = 1000;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let (few, many) =
        (measure(FEW_AGENTS, bench.rounds).await?, measure(AGENTS, bench.rounds).await?);
    let mut rows = Vec::new();
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        let per_second = 1.0 / many.median();
        rows.push(
            Row::new(format!("mock NAPI, {AGENTS} agents: {what}"), Unit::Time, many)
                .against("with 100 agents", few.median(), 2.0)
                .note(format!("{per_second:.0} requests/s on one connection")),
        );
        rows.push(Row::new(format!("mock NAPI: {what}, each"), Unit::Time, many).against(
            "1 ms",
            1.0 / LEAST_PER_SECOND,
            1.0,
        ));
    }
    Ok(rows)
}

type Named = (&'static str, Samples);

/// Seconds per request, by kind.
async fn measure(agents: usize, rounds: usize) -> anyhow::Result<Vec<Named>> {
    let server = Server::start("127.0.0.1:0".parse()?, Options::default()).await?;
    for n in 0..agents * NICS_EACH {
        let agent = n / NICS_EACH;
        server
            .store()
            .add_nic(NewNic::zone(&mac(n), &vm(n), &cn(agent)))
            .map_err(anyhow::Error::msg)?;
    }
    let address = server.addr();
    let ask = move || -> anyhow::Result<Vec<Named>> {
        let mut peer = Peer::connect(address)?;
        let mut kinds = [
            ("GET /nics?cn_uuid=", Samples::default()),
            ("GET /nics?belongs_to_uuid=", Samples::default()),
            ("GET /nics/:mac", Samples::default()),
            ("PUT /nics/:mac", Samples::default()),
        ];
        for round in 0..rounds {
            for (kind, (_, samples)) in kinds.iter_mut().enumerate() {
                let start = Instant::now();
                for n in 0..REQUESTS {
                    // Spread over all agents, the same ones in no two rounds.
                    let nic = (n * 7919 + round * 31) % (agents * NICS_EACH);
                    match kind {
                        0 => peer.get(&format!(
                            "/nics?cn_uuid={}&limit=1000&offset=0",
                            cn(nic / NICS_EACH)
                        ))?,
                        1 => peer.get(&format!("/nics?belongs_to_uuid={}", vm(nic)))?,
                        2 => peer.get(&format!("/nics/{}", mac(nic)))?,
                        _ => peer.put(&format!("/nics/{}", mac(nic)), r#"{"state":"running"}"#)?,
                    }
                }
                samples.push_value(start.elapsed().as_secs_f64() / REQUESTS as f64);
            }
        }
        Ok(kinds.into())
    };
    let measured = tokio::task::spawn_blocking(ask).await??;
    server.stop().await;
    Ok(measured)
}

fn mac(n: usize) -> String {
    format!("9{:011x}", n)
        .as_bytes()
        .chunks(2)
        .map(String::from_utf8_lossy)
        .collect::<Vec<_>>()
        .join(":")
}

fn vm(n: usize) -> String {
    format!("{:08x}-0000-4000-8000-000000000001", n / 2)
}

fn cn(agent: usize) -> String {
    format!("{agent:08x}-0000-4000-8000-00000000000c")
}

/// A connection that knows answers with a length.
struct Peer(BufReader<TcpStream>);

impl Peer {
    fn connect(address: SocketAddr) -> anyhow::Result<Peer> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Peer(BufReader::new(stream)))
    }

    fn get(&mut self, path: &str) -> anyhow::Result<()> {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: napi\r\n\r\n"))
    }

    fn put(&mut self, path: &str, body: &str) -> anyhow::Result<()> {
        let length = body.len();
        self.exchange(format!(
            "PUT {path} HTTP/1.1\r\nHost: napi\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    fn exchange(&mut self, request: String) -> anyhow::Result<()> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut length) = (String::new(), None);
        self.0.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") {
            bail!("{request}: {line}");
        }
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse::<usize>()?);
            }
        }
        let mut body = vec![0; length.context("an answer without a length")?];
        Ok(self.0.read_exact(&mut body)?)
    }
}
