// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One recorded scenario against a fresh daemon on a fresh node.

use std::time::Duration;

use anyhow::{Context, ensure};
use sdc_clients::http::Call;
use sdc_clients::vminfod::parse_ready;
use sdc_clients::{Http, http};
use serde_json::{Value, json};

use super::node::RecordedNode;
use crate::conform::deviations::{Judged, Ledger};
use crate::conform::step::{Rule, Step};
use crate::lines::LineStream;

/// As many lines as were recorded come within this, or what came is judged as it is.
const RECORDED_LIMIT: Duration = Duration::from_secs(2);
/// A line that must come.
const LIMIT: Duration = Duration::from_secs(20);

/// Replays it and enters every case of it.
pub(super) async fn replay(base: &Value, scenario: &Value, ledger: &Ledger) {
    let name = scenario["scenario"].as_str().or(scenario["name"].as_str()).unwrap_or("?");
    let ran = tokio::time::timeout(Duration::from_secs(300), run(base, scenario, name, ledger));
    match ran.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => ledger.enter(name, Judged::Differs(format!("{error:#}"))),
        Err(_) => ledger.enter(name, Judged::Differs("it did not end within 300 s".to_owned())),
    }
}

async fn run(base: &Value, scenario: &Value, name: &str, ledger: &Ledger) -> anyhow::Result<()> {
    let node = RecordedNode::new(base)?;
    let served = node.serve().await?;
    let transport = std::sync::Arc::new(http::HttpTransport::new()?);
    let client = Http::with_transport(&served.url(), "conform", transport)?.without_retries();
    let mut stream = LineStream::events(&client).await?;
    let ready = stream.next(LIMIT).await?;
    let mut seen = ready["seq"].as_u64().context("ready has no seq")?;
    if let Some(recorded) = scenario.get("ready") {
        ledger.enter(&format!("{name}: the ready line"), judge_ready(recorded, &ready));
    }
    let mut last = json!({});
    // What the base's files say counts as written.
    let files = base["files"].as_object().into_iter().flatten();
    let mut written: Vec<Value> = files
        .map(|(path, file)| json!({"op": "write", "path": path, "text": file["text"]}))
        .collect();
    for step in list(&scenario["steps"]) {
        node.perform(list(&step["ops"]), &client).await?;
        let recorded = lines(&step["events"])?;
        let got = collect(&client, &mut stream, recorded.len(), &mut seen).await?;
        for event in &got {
            if let Some(zone) = event["zonename"].as_str() {
                last[zone] = event["vm"].clone();
            }
        }
        let rule = if step["repeat"] == "same" { Rule::Lines } else { Rule::Result };
        let what = step["what"].as_str().unwrap_or("?");
        let ops = list(&step["ops"]);
        let done = Step { ops, recorded: &recorded, got: &got, rule };
        ledger.enter(&format!("{name}: {what}"), ledger.judge_step(&done, &written));
        written.extend(ops.iter().cloned());
    }
    ledger.enter(&format!("{name}: /vms at the end"), judge_end(&client, scenario, &last).await?);
    drop(stream);
    served.stop().await
}

/// The events of one step: as many as were recorded, then whatever else there is once everything
/// has been read afresh.
async fn collect(
    client: &Http,
    stream: &mut LineStream,
    expected: usize,
    seen: &mut u64,
) -> anyhow::Result<Vec<Value>> {
    let mut got = Vec::new();
    while got.len() < expected {
        match stream.within(RECORDED_LIMIT).await? {
            Some(event) => got.push(event),
            None => break,
        }
    }
    client.execute(Call::get(&["vms"]).query("sync", "true")).await?;
    let newest = newest(client).await?;
    *seen += got.len() as u64;
    while *seen < newest {
        got.push(stream.next(LIMIT).await?);
        *seen += 1;
    }
    ensure!(*seen == newest, "{} events were counted, {newest} committed", *seen);
    Ok(got)
}

/// The newest event there is: a new listener's snapshot contains it.
async fn newest(client: &Http) -> anyhow::Result<u64> {
    let ready = LineStream::events(client).await?.next(LIMIT).await?;
    ready["seq"].as_u64().context("ready has no seq")
}

async fn judge_end(client: &Http, scenario: &Value, last: &Value) -> anyhow::Result<Judged> {
    let vms: Vec<Value> = client.execute(Call::get(&["vms"])).await?.json("VMs")?;
    let names: Vec<&Value> = vms.iter().map(|vm| &vm["zonename"]).collect();
    let wanted: Vec<&Value> = list(&scenario["final_zonenames"]).iter().collect();
    if names != wanted {
        return Ok(Judged::Differs(format!("zones recorded {wanted:?}\n  shown {names:?}")));
    }
    for (zone, told) in last.as_object().into_iter().flatten() {
        let shown = vms.iter().find(|vm| vm["zonename"] == **zone);
        if shown.unwrap_or(&Value::Null) != told {
            return Ok(Judged::Differs(format!("zone {zone}: told {told}\n  shown {shown:?}")));
        }
    }
    Ok(Judged::Equal)
}

/// The first line, without its date and uuid and what this daemon adds; `vms` stays text.
fn judge_ready(recorded: &Value, ready: &Value) -> Judged {
    let parsed: Value = match recorded {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    let plain = |line: &Value| {
        let mut line = line.clone();
        if let Some(keys) = line.as_object_mut() {
            keys.retain(|key, _| !matches!(key.as_str(), "date" | "uuid" | "seq" | "epoch"));
        }
        line
    };
    let (wanted, got) = (plain(&parsed), plain(ready));
    let text = |line: &Value| line["vms"].as_str().map(str::to_owned);
    if !ready["vms"].is_string() || parse_ready(ready["vms"].clone()).is_err() {
        return Judged::Differs(format!("vms is no JSON text of VMs: {}", ready["vms"]));
    }
    let vms = |line: &Value| -> Option<Value> { serde_json::from_str(&text(line)?).ok() };
    let keys = |line: &Value| line.as_object().map(|keys| keys.keys().cloned().collect::<Vec<_>>());
    if vms(&wanted) == vms(&got) && keys(&wanted) == keys(&got) {
        return Judged::Equal;
    }
    Judged::Differs(format!("recorded {wanted}\n  sent {got}"))
}

fn lines(events: &Value) -> anyhow::Result<Vec<Value>> {
    list(events)
        .iter()
        .map(|line| {
            let text =
                line.as_str().with_context(|| format!("a recorded event is no text: {line}"))?;
            serde_json::from_str(text).with_context(|| format!("recorded: {text:?}"))
        })
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
