// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Memory at rest and with slow readers, and CPU while nothing happens.

use serde_json::json;

use super::idle;
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

const MIB: f64 = 1_048_576.0;
const SLOW: usize = 16;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let (rss, rounds) = (at_rest(bench).await?, bench.rounds);
    let cn = bench.five_thousand().await?;
    let served = Served::start(cn, json!({})).await?;
    served.json("/vms")?;
    served.quiet().await?;
    let slow = slow_readers(&served, rounds).await?;

    let sweeps = idle::sweeps(&served, cn).await?;
    let pace = sweeps.pace.median();
    let idle = Row::new("idle CPU, 5,000 VMs", Unit::Percent, &sweeps.shares).against(
        "0.5 % of a core",
        0.5,
        1.0,
        0.4,
    );
    served.stop().await?;
    let looks = idle::looks(bench.five_thousand().await?, pace).await? * 100.0;
    let idle = idle.note(format!(
        "a sweep every {pace:.1} s; asking for the stamps of the files takes {looks:.3} % of it"
    ));
    Ok(vec![rss, slow, idle])
}

/// The more of what it has after its start and after a refresh: every daemon has had both.
async fn at_rest(bench: &mut Bench) -> anyhow::Result<Row> {
    let rounds = bench.rounds;
    let cn = bench.ten_thousand().await?;
    let (mut values, mut program) = (Samples::default(), Samples::default());
    let mut json_bytes = 0.0;
    for _ in 0..rounds {
        let served = Served::start(cn, json!({ "sweep": "2s", "sweep_vms": 100_000 })).await?;
        let mut client = served.connect()?;
        json_bytes = client.get("/vms")? as f64;
        client.get("/vms")?;
        // A sweep or two, as every daemon has had.
        served.until(|status| status["counters"]["sweeps"].as_u64() >= Some(2)).await?;
        let started = served.rss()?;
        client.get("/vms?sync=true")?;
        served.quiet().await?;
        values.push_value(served.rss()?.max(started));
        program.push_value(served.program()?);
        served.stop().await?;
    }
    let over = values.median() - 10.0 * MIB;
    let mut row = Row::new("RSS, 10,000 VMs", Unit::Bytes, &values)
        .of(over, "their JSON", json_bytes, 2.5, None)
        .note(format!(
            "after a start and a refresh; {:.1} MB are pages of the program's own file; 10 MiB are taken off before the ratio is taken",
            program.median() / 1e6
        ));
    if values.median() <= 1.5 * json_bytes + 6.0 * MIB {
        row.verdict = super::table::Verdict::Beyond;
    }
    Ok(row)
}

/// Readers that begin the whole list and stop.
async fn slow_readers(served: &Served, rounds: usize) -> anyhow::Result<Row> {
    let (before, mut grown) = (served.rss()?, Samples::default());
    for _ in 0..rounds {
        let mut readers = Vec::new();
        for _ in 0..SLOW {
            let mut client = served.connect()?;
            client.send("/vms")?;
            client.first_bytes()?;
            readers.push(client);
        }
        served.quiet().await?;
        grown.push_value(served.rss()? - before);
    }
    Ok(Row::new("16 slow readers of /vms, 5,000 VMs", Unit::Bytes, &grown).against(
        "1 MiB each",
        SLOW as f64 * MIB,
        1.0,
        0.1,
    ))
}
