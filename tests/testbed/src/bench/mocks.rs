// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock NAPI's own speed: the cost of a request must not grow with the NICs of other nodes.

use http::{Method, StatusCode};
use sdc_clients::http::{Call, Http};
use serde_json::json;
use tokio::time::Instant;

use super::setting::Bench;
use super::table::{Row, Samples, Unit};
use crate::lab::asking::OWN_AGENT;
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
        let nic = NewNic::zone(&mac(n), &vm(n), &cn(n / NICS_EACH));
        server.store().add_nic(nic).map_err(anyhow::Error::msg)?;
    }
    let http = Http::new(&server.url(), OWN_AGENT)?.without_retries();
    let list = || Call::get(&["nics"]);
    let kinds: [(_, &dyn Fn(usize) -> Call); 4] = [
        ("GET /nics?cn_uuid=", &|nic| {
            list().query("cn_uuid", cn(nic / NICS_EACH)).query("limit", 1000).query("offset", 0)
        }),
        ("GET /nics?belongs_to_uuid=", &|nic| list().query("belongs_to_uuid", vm(nic))),
        ("GET /nics/:mac", &|nic| Call::get(&["nics", &mac(nic)])),
        ("PUT /nics/:mac", &|nic| {
            Call::new(Method::PUT, &["nics", &mac(nic)]).json(&json!({"state": "running"}))
        }),
    ];
    let mut measured = kinds.map(|(what, _)| (what, Samples::default()));
    for round in 0..rounds {
        for ((_, call), (_, samples)) in kinds.iter().zip(&mut measured) {
            let start = Instant::now();
            for n in 0..REQUESTS {
                // Spread over all agents, the same ones in no two rounds.
                let nic = (n * 7919 + round * 31) % (agents * NICS_EACH);
                http.execute(call(nic)).await?.require(StatusCode::OK)?;
            }
            samples.push_value(start.elapsed().as_secs_f64() / REQUESTS as f64);
        }
    }
    server.stop().await;
    Ok(measured.into())
}

fn mac(n: usize) -> String {
    let [.., a, b, c] = n.to_be_bytes();
    format!("90:b8:d0:{a:02x}:{b:02x}:{c:02x}")
}

fn vm(n: usize) -> String {
    format!("{:08x}-0000-4000-8000-000000000001", n / 2)
}

fn cn(agent: usize) -> String {
    format!("{agent:08x}-0000-4000-8000-00000000000c")
}
