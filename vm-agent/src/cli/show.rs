// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ping`, `status`, `plan`, `why`, `vm`: ask the running agent.

use std::time::Duration;

use daemon::agent::{Counter as _, Verbs as _, running_plan};
use daemon::cli::pages::{self, count_lines, named_fields, page, state_lines, text, to_the_second};
use daemon::cli::screen::visible;
use daemon::cli::{Layout, NamedListArgs, Screen, Table, control, facts, names, span};
use daemon::text::counted;
use serde_json::{Value, json};

use super::args::Verb;
use crate::config::Config;
use crate::status::Count;

async fn uuid_of(config: &Config, vm: &str) -> anyhow::Result<String> {
    Ok(names::vm(&config.services.vminfod, Verb::NAME, vm).await?.uuid)
}

/// Returns `/status` for people: one fact per line.
pub(super) fn status_lines(page: &Value, screen: Screen) -> String {
    let items = |key: &str| page[key].as_array().map_or(&[][..], Vec::as_slice);
    let number = |key: &str| page[key].as_u64().unwrap_or_default();
    let mut lines = state_lines(page, screen);
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
    let names = Count::ALL.iter().map(|count| count.name());
    lines.extend(count_lines(page, names, screen));
    facts(&lines)
}

pub(super) async fn plan(
    config: &Config,
    base: &str,
    list: &NamedListArgs,
    all: bool,
    screen: Screen,
) -> anyhow::Result<String> {
    let layout = &list.layout();
    let socket = &config.basics.places.control_socket;
    let mut plan = running_plan(Verb::NAME, base, Some(socket)).await?;
    if list.shows_names(screen) {
        plan = config.names().await.in_page(plan);
    }
    if layout.json && !layout.asks_for_table() {
        return Ok(screen.harmless(&format!("{plan:#}\n")));
    }
    let decisions = plan["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    // What was written stays here until something else is decided: the time tells it from what is decided now.
    let mut table = Table::new(&["vm", "action", "at", "reason"]);
    for line in decisions.iter().filter(|line| all || line["action"] != "nothing") {
        let [vm, action, reason] = ["vm", "action", "reason"].map(|key| text(line, key));
        table.row(vec![
            vm.into(),
            action.into(),
            to_the_second(&text(line, "at")).into(),
            reason.into(),
        ]);
    }
    let mut out = table.print(layout, screen)?;
    if !layout.asks_for_table() && out.lines().count() == 1 {
        out = "no VM differs or waits (--all shows the others)\n".to_owned();
    }
    if let (Some(id), false) = (plan["approval"]["id"].as_str(), layout.asks_for_table()) {
        let vms = plan["approval"]["vms"].as_array().map_or(0, Vec::len);
        let vms = counted(vms, "VM", "VMs");
        out += &format!(
            "\nbrake: {}\nTo report {vms} destroyed: vm-agent approve {}\n",
            text(&plan, "brake"),
            visible(id)
        );
    }
    Ok(out)
}

pub(super) async fn why(
    config: &Config,
    base: &str,
    vm: &str,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    let vm = uuid_of(config, vm).await?;
    let plan = page(Verb::NAME, base, "plan", "decisions").await?;
    let is_it = |line: &&Value| line["vm"] == *vm;
    let queued = plan["queue"].as_array().into_iter().flatten().find(is_it);
    let decided = plan["decisions"].as_array().into_iter().flatten().find(is_it);
    let mut said = decided.cloned().unwrap_or_else(|| json!({"vm": vm}));
    said["due_in_ms"] = queued.map_or(Value::Null, |line| line["due_in_ms"].clone());
    let people = Screen { is_terminal: true, ..screen };
    Ok(pages::shown(&said, layout, people, |said, _| {
        let mut out = match decided {
            Some(_) => {
                let [at, action, reason] = ["at", "action", "reason"].map(|key| text(said, key));
                format!("{at} {action}: {reason}\n")
            }
            None => "nothing was decided about it since the agent's start\n".to_owned(),
        };
        if let Some(due) = said["due_in_ms"].as_u64() {
            out += &format!("its next turn is due in {}\n", span(Duration::from_millis(due)));
        }
        out
    })?)
}

pub(super) async fn vm(
    config: &Config,
    vm: &str,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    let vm = uuid_of(config, vm).await?;
    let target = format!("/vms/{vm}");
    let socket = &config.basics.places.control_socket;
    let said = control::ask(socket, "GET", &target, None, "vm").await?;
    let people = Screen { is_terminal: true, ..screen };
    Ok(pages::shown(&said, layout, people, |said, _| {
        named_fields(said, &["vm", "node", "vmapi", "told", "action", "reason", "mute"])
    })?)
}
