// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `status`, `plan`, `reap --dry-run`, `nic`, `approve`: what the running agent says, by its
//! socket where that may be opened, else by its port. A rehearsal and a NIC's explanation are
//! worked out here when no agent runs; nothing here ever writes to NAPI.

use std::io::IsTerminal as _;

use anyhow::{Context as _, anyhow};
use sdc_clients::http::Call;
use sdc_clients::{Class, Http, MacAddr};
use serde_json::{Value, json};

use super::{Files, PlanArgs, Usage, load, print, runtime, show_json};
use crate::agent::Agent;
use crate::config::Config;
use crate::control::{self, ControlError};

/// A page of the loopback port.
async fn page(config: &Config, name: &'static str) -> anyhow::Result<Value> {
    let base = format!("http://{}", config.status_listen);
    let http = Http::new(&base, "net-agent-cli")?.without_retries();
    let answer = http.execute(Call::get(&[name])).await;
    let answer = answer.and_then(|reply| reply.json::<Value>("a JSON page"));
    if answer.as_ref().is_err_and(|err| err.class() == Class::Connect) {
        return Err(anyhow!(
            "the daemon does not run: nothing answers on {}",
            config.status_listen
        ));
    }
    answer.with_context(|| format!("no answer from the daemon at {}", config.status_listen))
}

pub(super) fn status(files: &Files) -> anyhow::Result<()> {
    let config = load(files)?;
    show_json(&runtime()?.block_on(page(&config, "status"))?);
    Ok(())
}

pub(super) fn plan(files: &Files, args: &PlanArgs) -> anyhow::Result<()> {
    let config = load(files)?;
    let found = runtime()?.block_on(running_plan(&config))?;
    show_plan(found, args)
}

/// The running agent's plan; by its socket, the records that the brake keeps are read afresh and
/// offered for approval.
async fn running_plan(config: &Config) -> anyhow::Result<Value> {
    match control::ask(&config.control_socket, "POST", "/plan", None).await {
        Ok(plan) => Ok(plan),
        Err(ControlError::Absent { .. }) => page(config, "plan").await,
        Err(err) => Err(err.into()),
    }
}

pub(super) fn rehearse(files: &Files, args: &PlanArgs) -> anyhow::Result<()> {
    let config = load(files)?;
    let found = runtime()?.block_on(async {
        match running_plan(&config).await {
            Ok(plan) if !plan["made"].is_null() => Ok(plan),
            _ => {
                eprintln!("net-agent: no running agent has a plan: one look, now");
                let agent = Agent::new(config)?;
                agent.rehearse().await.map_err(|why| anyhow!(why))
            }
        }
    })?;
    show_plan(found, args)
}

pub(super) fn approve(files: &Files, id: &str) -> anyhow::Result<()> {
    let config = load(files)?;
    let body = json!({"id": id});
    let asked = control::ask(&config.control_socket, "POST", "/approve", Some(&body));
    let done = runtime()?.block_on(asked).context("approve")?;
    print(&format!(
        "approved {} NICs for 15 minutes; every other guard still runs\n",
        done["nics"]
    ));
    Ok(())
}

pub(super) fn nic(files: &Files, mac: &str, json: bool) -> anyhow::Result<()> {
    let mac: MacAddr = mac.parse().map_err(|err| anyhow!(Usage(format!("{mac}: {err}"))))?;
    let config = load(files)?;
    let said = runtime()?.block_on(async {
        match control::ask(&config.control_socket, "GET", &format!("/nics/{mac}"), None).await {
            Err(ControlError::Absent { .. }) => {
                let mut said = Agent::new(config)?.explain(mac).await;
                said["mute"] = "the daemon does not run: nothing is written".into();
                Ok(said)
            }
            answer => answer.map_err(anyhow::Error::from),
        }
    })?;
    if json {
        show_json(&said);
        return Ok(());
    }
    let mut out = String::new();
    for key in ["mac", "napi", "etag", "node", "vmapi", "hold", "departed", "brake", "mute"] {
        out += &match &said[key] {
            Value::Null => format!("{key:<9} -\n"),
            Value::String(text) => format!("{key:<9} {text}\n"),
            value => format!("{key:<9} {value}\n"),
        };
    }
    out += &evidence(&said);
    out += &format!("{:<9} {}\n", paint(&text(&said, "action")), text(&said, "reason"));
    print(&out);
    Ok(())
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned()
}

fn evidence(value: &Value) -> String {
    let list = value.get("evidence").and_then(Value::as_array);
    let lines = list.into_iter().flatten().map(|e| {
        format!("    {:<4} {:<5} {}\n", text(e, "guard"), text(e, "answer"), text(e, "said"))
    });
    lines.collect()
}

/// An action's word, coloured for a terminal unless `NO_COLOR` is set.
fn paint(action: &str) -> String {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let code = match action {
        "delete" => "31",
        "defer" | "ask-vmapi" => "33",
        "write" | "look" => "32",
        _ => return format!("{action:<9}"),
    };
    if wanted && std::io::stdout().is_terminal() {
        format!("\x1b[{code}m{action:<9}\x1b[0m")
    } else {
        format!("{action:<9}")
    }
}

fn show_plan(mut page: Value, args: &PlanArgs) -> anyhow::Result<()> {
    if let (Some(mac), Some(list)) =
        (&args.mac, page.get_mut("decisions").and_then(Value::as_array_mut))
    {
        let mac: MacAddr =
            mac.parse().map_err(|err| anyhow!(Usage(format!("--mac {mac}: {err}"))))?;
        let wanted = mac.to_string();
        list.retain(|d| d.get("mac").and_then(Value::as_str) == Some(&wanted));
    }
    if args.json {
        show_json(&page);
        return Ok(());
    }
    let mut out = format!("made {}\n", text(&page, "made"));
    let mut agreed = 0usize;
    for d in page.get("decisions").and_then(Value::as_array).into_iter().flatten() {
        let action = text(d, "action");
        if action == "keep" && !args.all && args.mac.is_none() {
            agreed += 1;
            continue;
        }
        let (mac, vm) = (text(d, "mac"), text(d, "vm"));
        let became = d["outcome"].as_str().map(|what| format!(" → {what}")).unwrap_or_default();
        out += &format!("{mac}  {vm}  {}  {}{became}\n", paint(&action), text(d, "reason"));
        if let Some(napi) = d["napi"].as_str().filter(|said| !said.is_empty()) {
            out += &format!("    NAPI       {napi}\n");
        }
        out += &evidence(d);
    }
    for d in page.get("departed").and_then(Value::as_array).into_iter().flatten() {
        out += &format!("{}  {}  departed   {}\n", text(d, "mac"), text(d, "vm"), text(d, "why"));
    }
    if agreed > 0 {
        out += &format!("{agreed} more are kept as they are (--all shows them)\n");
    }
    if let Some(why) = page["braked"].as_str() {
        out += &format!("brake: {why}\n");
    }
    if let Some(id) = page["approval"]["id"].as_str() {
        let nics = page["approval"]["nics"].as_array().map_or(0, Vec::len);
        let left = page["approval"]["expires_in_s"].as_u64().unwrap_or_default() / 60;
        out +=
            &format!("net-agent approve {id}   # these {nics} NICs as they are; {left} min left\n");
    }
    print(&out);
    Ok(())
}
