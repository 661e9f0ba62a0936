// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ping`, `status`, `plan`, `why`, `vm`, `approve`: ask the running agent.

use anyhow::{Context as _, anyhow};
use daemon::cli::pages::{self, fields, page, text, to_the_second};
use daemon::cli::screen::visible;
use daemon::cli::{Layout, Screen, Table, Tone, control, facts};
use sdc_clients::uuid_value;
use serde_json::{Value, json};

use super::args::{Files, NAME};
use crate::config::Config;
use crate::status::Count;

/// Wrong usage of the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(String);

fn load(files: &Files) -> anyhow::Result<Config> {
    Ok(Config::load(&files.config, files.policy.as_deref())?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.context("cannot start the runtime")
}

fn uuid_of(vm: &str) -> anyhow::Result<String> {
    uuid::Uuid::try_parse(vm).map_err(|err| anyhow!(Usage(format!("{vm}: {err}"))))?;
    Ok(uuid_value(vm))
}

pub(super) fn ping(files: &Files, json: bool, screen: Screen) -> anyhow::Result<String> {
    let listen = load(files)?.places.status_listen;
    Ok(runtime()?.block_on(pages::ping(NAME, listen, json, screen))?)
}

pub(super) fn status(files: &Files, layout: &Layout, screen: Screen) -> anyhow::Result<String> {
    let listen = load(files)?.places.status_listen;
    let page = runtime()?.block_on(page(NAME, listen, "status"))?;
    if layout.asks_for_table() {
        return Ok(fields(&page, layout, screen)?);
    }
    Ok(match screen.is_terminal && !layout.json {
        true => status_lines(&page, screen),
        false => screen.harmless(&format!("{page:#}\n")),
    })
}

/// Returns `/status` for people: one fact per line.
fn status_lines(page: &Value, screen: Screen) -> String {
    let items = |key: &str| page[key].as_array().map_or(&[][..], Vec::as_slice);
    let number = |key: &str| page[key].as_u64().unwrap_or_default();
    let state = match page["mute"].as_str() {
        None => screen.paint(Tone::Good, "writing"),
        Some(why) => screen.paint(Tone::Odd, &format!("writes nothing: {}", visible(why))),
    };
    let mut lines = vec![("state", state)];
    for what in items("waiting_for") {
        let what = visible(what.as_str().unwrap_or("-"));
        lines.push(("waiting for", screen.paint(Tone::Odd, &what)));
    }
    if page["brake"].is_string() {
        let help = "see `vm-agent plan`, then `vm-agent approve ID`";
        let brake = format!("{}; {help}", text(page, "brake"));
        lines.push(("brake", screen.paint(Tone::Bad, &brake)));
    }
    if page["memory"].is_string() {
        lines.push(("memory fault", screen.paint(Tone::Bad, &text(page, "memory"))));
    }
    let (vms, hidden) = (number("vms"), number("hidden"));
    lines.push(("VMs", format!("{vms}, {hidden} of them hidden")));
    let (queue, held, gone) = (number("queue"), number("held"), number("gone"));
    lines.push(("open", format!("{queue} in the queue, {held} held, {gone} gone and not settled")));
    let last = page["last_start"].as_str().map_or("none yet".to_owned(), to_the_second);
    lines.push(("compared", last));
    if let Some(put) = items("last_puts").first() {
        let at = put["at"].as_str().map_or("-".to_owned(), to_the_second);
        lines.push(("last write", format!("{at} {} {}", text(put, "what"), text(put, "vm"))));
    }
    let names = Count::ALL.iter().map(|count| count.metric().0).filter(|name| number(name) > 0);
    let done: Vec<String> = names.map(|name| format!("{name} {}", number(name))).collect();
    lines.push(("so far", if done.is_empty() { "nothing".to_owned() } else { done.join(", ") }));
    if page["last_error"].is_string() {
        let at = page["last_error_at"].as_str().map_or("-".to_owned(), to_the_second);
        let error = format!("{at} {}", text(page, "last_error"));
        lines.push(("last error", screen.paint(Tone::Bad, &error)));
    }
    facts(&lines)
}

pub(super) fn plan(
    files: &Files,
    layout: &Layout,
    all: bool,
    screen: Screen,
) -> anyhow::Result<String> {
    let config = load(files)?;
    let plan = runtime()?.block_on(async {
        // Asked by its socket, the agent offers what the brake blocks.
        match control::ask(&config.places.control_socket, "POST", "/plan", None).await {
            Ok(plan) => anyhow::Ok(plan),
            Err(control::ControlError::Absent { .. }) => {
                Ok(page(NAME, config.places.status_listen, "plan").await?)
            }
            Err(err) => Err(err.into()),
        }
    })?;
    if layout.json && !layout.asks_for_table() {
        return Ok(screen.harmless(&format!("{plan:#}\n")));
    }
    let decisions = plan["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut table = Table::new(&["vm", "action", "reason", "at"]).usually(3);
    for line in decisions.iter().filter(|line| all || line["action"] != "nothing") {
        let cells = ["vm", "action", "reason", "at"].map(|key| text(line, key).into());
        table.row(cells.into());
    }
    let mut out = table.print(layout, screen)?;
    if let (Some(id), false) = (plan["approval"]["id"].as_str(), layout.asks_for_table()) {
        let vms = plan["approval"]["vms"].as_array().map_or(0, Vec::len);
        out += &format!(
            "\n{}\nTo report these {vms} VMs destroyed: vm-agent approve {}\n",
            text(&plan, "brake"),
            visible(id)
        );
    }
    Ok(out)
}

pub(super) fn why(files: &Files, vm: &str) -> anyhow::Result<String> {
    let (vm, listen) = (uuid_of(vm)?, load(files)?.places.status_listen);
    let plan = runtime()?.block_on(page(NAME, listen, "plan"))?;
    let is_it = |line: &&Value| line["vm"] == *vm;
    let queued = plan["queue"].as_array().into_iter().flatten().find(is_it);
    let mut out = match plan["decisions"].as_array().into_iter().flatten().find(is_it) {
        Some(line) => {
            format!("{} {}: {}\n", text(line, "at"), text(line, "action"), text(line, "reason"))
        }
        None => "nothing was decided about it since the agent's start\n".to_owned(),
    };
    if let Some(due) = queued.and_then(|line| line["due_in_ms"].as_u64()) {
        out += &format!("its next turn is due in {due} ms\n");
    }
    Ok(out)
}

pub(super) fn vm(
    files: &Files,
    vm: &str,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    let (vm, config) = (uuid_of(vm)?, load(files)?);
    let target = format!("/vms/{vm}");
    let ask = control::ask(&config.places.control_socket, "GET", &target, None);
    let said = runtime()?.block_on(ask)?;
    if layout.asks_for_table() {
        return Ok(fields(&said, layout, screen)?);
    }
    if layout.json {
        return Ok(screen.harmless(&format!("{said:#}\n")));
    }
    let lines = ["vm", "node", "vmapi", "told", "action", "reason", "mute"].map(|key| {
        let shown = match &said[key] {
            Value::Null => "-".to_owned(),
            Value::String(text) => visible(text),
            value => visible(&value.to_string()),
        };
        (key, shown)
    });
    Ok(facts(&lines))
}

pub(super) fn approve(files: &Files, id: &str) -> anyhow::Result<String> {
    let config = load(files)?;
    let body = json!({ "id": id });
    let ask = control::ask(&config.places.control_socket, "POST", "/approve", Some(&body));
    let done = runtime()?.block_on(ask)?;
    Ok(format!("approved: {} VMs are reported destroyed\n", done["vms"]))
}
