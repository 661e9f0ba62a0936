// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Memory at rest and with slow readers, and CPU time while nothing happens.

use serde_json::json;

use super::cn::Cn;
use super::idle;
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

const MIB: f64 = 1_048_576.0;
const SLOW: usize = 16;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let rounds = bench.rounds;
    let mut rows = vec![
        at_rest(bench.node(1000).await?, "1,000 VMs", rounds).await?,
        at_rest(bench.node(5000).await?, "5,000 VMs", rounds).await?,
        slow_readers(bench.node(5000).await?, rounds).await?,
    ];
    let cn = bench.node(1000).await?;
    let served = Served::start(cn, json!({})).await?;
    served.quiet().await?;
    let sweeps = idle::sweeps(&served, cn).await?;
    served.stop().await?;
    let pace = sweeps.pace.median();
    let looks = idle::looks(cn, pace).await? * 100.0;
    rows.push(
        Row::new("idle CPU, 1,000 VMs", Unit::Percent, &sweeps.shares)
            .against("0.3 % of a core", 0.3, 1.0)
            .note(format!(
                "a sweep every {pace:.1} s; the stats of the files alone take {looks:.3} %"
            )),
    );
    Ok(rows)
}

/// The resident memory after a start, some sweeps and a refresh, without the helpers.
async fn at_rest(cn: &mut Cn, size: &str, rounds: usize) -> anyhow::Result<Row> {
    let (mut values, mut program) = (Samples::default(), Samples::default());
    let mut json_bytes = 0.0;
    for _ in 0..rounds {
        let served = Served::start(cn, json!({ "sweep": "2s" })).await?;
        let mut client = served.connect()?;
        json_bytes = client.get("/vms")? as f64;
        client.get("/vms")?;
        served.until(|status| status["counters"]["sweeps"].as_u64() >= Some(2)).await?;
        let started = served.memory("VmRSS")?;
        client.get("/vms?sync=true")?;
        served.quiet().await?;
        values.push_value(served.memory("VmRSS")?.max(started));
        program.push_value(served.memory("RssFile")?);
        served.stop().await?;
    }
    let note = format!(
        "JSON {:.1} MB; {:.1} MB are pages of the program's own file",
        json_bytes / 1e6,
        program.median() / 1e6
    );
    let limit = 5.0 * json_bytes + 15e6;
    Ok(Row::new(format!("RSS, {size}"), Unit::Bytes, &values)
        .against("5 times the JSON and 15 MB", limit, 1.0)
        .note(note))
}

/// Readers that begin the whole list and stop.
async fn slow_readers(cn: &mut Cn, rounds: usize) -> anyhow::Result<Row> {
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    served.json("/vms").await?;
    served.quiet().await?;
    let (before, mut grown) = (served.memory("VmRSS")?, Samples::default());
    for _ in 0..rounds {
        let mut readers = Vec::new();
        for _ in 0..SLOW {
            let mut client = served.connect()?;
            client.send("/vms")?;
            client.first_bytes()?;
            readers.push(client);
        }
        served.quiet().await?;
        grown.push_value(served.memory("VmRSS")? - before);
    }
    served.stop().await?;
    Ok(Row::new("16 slow readers of /vms, 5,000 VMs", Unit::Bytes, &grown).against(
        "1 MiB each",
        SLOW as f64 * MIB,
        1.0,
    ))
}
