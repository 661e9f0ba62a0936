// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `plan`, `reap --dry-run`: ask the running agent, by its socket if this user may open
//! it, else by its port. A rehearsal is made here if no agent runs. Nothing here writes to NAPI.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use daemon::agent::running_plan;
use daemon::cli::names::Names;
use daemon::cli::pages::text;
use daemon::cli::{Cell, Layout, Progress, Screen, Table, Usage, ago, span};
use daemon::text::counted;
use sdc_clients::MacAddr;
use serde_json::Value;

use super::args::{PlanArgs, Verb};
use super::output::{evidence, painted, tone};
use crate::agent::Agent;
use crate::config::Config;
use daemon::agent::Verbs as _;

/// The columns of a plan; the usual ones first.
const COLUMNS: [&str; 7] = ["mac", "vm", "action", "reason", "outcome", "napi", "open"];
/// How many of them are usual.
const USUAL: usize = 5;

pub(super) async fn plan(
    config: &Config,
    base: &str,
    args: &PlanArgs,
    screen: Screen,
) -> anyhow::Result<String> {
    let found = running_plan(Verb::NAME, base, socket(config, args)).await?;
    let names = names(config, args, screen).await;
    show(names.in_page(found), args, screen)
}

async fn names(config: &Config, args: &PlanArgs, screen: Screen) -> Names {
    if args.list.shows_names(screen) { config.names().await } else { Names::default() }
}

fn socket<'a>(config: &'a Config, args: &PlanArgs) -> Option<&'a Path> {
    args.fresh.then_some(config.basics.places.control_socket.as_path())
}

pub(super) async fn rehearse(
    config: Config,
    base: &str,
    args: &PlanArgs,
    screen: Screen,
) -> anyhow::Result<String> {
    let names = names(&config, args, screen).await;
    let found = match running_plan(Verb::NAME, base, socket(&config, args)).await {
        Ok(plan) if !plan["made"].is_null() => plan,
        _ => {
            eprintln!("net-agent: no running agent has a plan; making one from a single look");
            let _shown = Progress::begin("looking at the node, NAPI and VMAPI");
            Agent::new(config)?.rehearse().await?
        }
    };
    show(names.in_page(found), args, screen)
}

fn show(mut page: Value, args: &PlanArgs, screen: Screen) -> anyhow::Result<String> {
    if let (Some(mac), Some(list)) =
        (&args.mac, page.get_mut("decisions").and_then(Value::as_array_mut))
    {
        let mac: MacAddr =
            mac.parse().map_err(|err| anyhow!(Usage(format!("--mac {mac}: {err}"))))?;
        let wanted = mac.to_string();
        list.retain(|d| d.get("mac").and_then(Value::as_str) == Some(&wanted));
        if list.is_empty() {
            return Err(anyhow!("the plan has no NIC {mac}: `net-agent nic {mac}` asks about it"));
        }
    }
    let layout = args.list.layout();
    let kept_too = args.all || args.mac.is_some();
    if layout.asks_for_table() {
        return rows(&page, kept_too, &layout, screen);
    }
    if layout.json {
        return Ok(format!("{page:#}\n"));
    }
    Ok(story(&page, kept_too, screen))
}

/// Returns the lines to show, and how many records that are kept are left out.
fn decisions(page: &Value, kept_too: bool) -> (Vec<&Value>, usize) {
    let all = page.get("decisions").and_then(Value::as_array).into_iter().flatten();
    let (shown, kept): (Vec<_>, Vec<_>) =
        all.partition(|d| kept_too || text(d, "action") != "keep");
    (shown, kept.len())
}

fn departed(page: &Value) -> impl Iterator<Item = &Value> {
    page.get("departed").and_then(Value::as_array).into_iter().flatten()
}

/// Returns one row for each NIC.
fn rows(page: &Value, kept_too: bool, layout: &Layout, screen: Screen) -> anyhow::Result<String> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for d in decisions(page, kept_too).0 {
        let row = COLUMNS.map(|column| match (column, tone(&text(d, column))) {
            ("action", Some(tone)) => Cell::toned(d[column].clone(), tone),
            _ => d[column].clone().into(),
        });
        table.row(row.to_vec());
    }
    for d in departed(page) {
        let (mac, vm, why) = (d["mac"].clone(), d["vm"].clone(), d["why"].clone());
        let none = || Cell::from(Value::Null);
        table.row(vec![
            mac.into(),
            vm.into(),
            "departed".into(),
            why.into(),
            none(),
            none(),
            true.into(),
        ]);
    }
    Ok(table.print(layout, screen)?)
}

/// Returns each NIC with every guard's answer, and what the brake blocks.
fn story(page: &Value, kept_too: bool, screen: Screen) -> String {
    let age = page["made"].as_str().and_then(|made| made.parse().ok());
    let mut out = match age {
        Some(at) => format!("made {} ({})\n", ago(at), text(page, "made")),
        None => {
            "no plan yet: the first pass has not begun (net-agent status says why)\n".to_owned()
        }
    };
    let (shown, kept) = decisions(page, kept_too);
    let vms = shown.iter().copied().chain(departed(page)).map(|d| text(d, "vm").chars().count());
    let wide = vms.max().unwrap_or_default();
    let (open, finished): (Vec<_>, Vec<_>) =
        shown.into_iter().partition(|d| d["open"] != false || d["outcome"].is_null());
    if open.is_empty() && page["made"].is_string() {
        out += "no NIC is open\n";
    }
    for d in open {
        out += &line(d, wide, screen);
        if d["napi"].as_str().is_some_and(|said| !said.is_empty()) {
            out += &format!("    NAPI       {}\n", text(d, "napi"));
        }
        out += &evidence(d);
    }
    for d in departed(page) {
        let (mac, vm, why) = (text(d, "mac"), text(d, "vm"), text(d, "why"));
        out += &format!("{mac}  {vm:<wide$}  departed   {why}\n");
    }
    if !finished.is_empty() {
        out += "finished since:\n";
        out.extend(finished.into_iter().map(|d| line(d, wide, screen)));
    }
    if kept > 0 {
        out += &format!("{kept} more are kept as they are (--all shows them)\n");
    }
    if page["braked"].is_string() {
        out += &format!("brake: {}\n", text(page, "braked"));
    }
    if let Some(id) = page["approval"]["id"].as_str() {
        let nics = page["approval"]["nics"].as_array().map_or(0, Vec::len);
        let left = span(Duration::from_secs(
            page["approval"]["expires_in_s"].as_u64().unwrap_or_default(),
        ));
        let nics = counted(nics, "NIC as it is", "NICs as they are");
        out += &format!("net-agent approve {id}   # {nics}; {left} left\n");
    } else if page["braked"].is_string() {
        out +=
            "net-agent plan --fresh   # reads what the brake blocks, and offers it for approval\n";
    }
    out
}

/// Returns one NIC in one line; its VM's name takes `wide` columns.
fn line(d: &Value, wide: usize, screen: Screen) -> String {
    let (mac, vm, reason) = (text(d, "mac"), text(d, "vm"), text(d, "reason"));
    let became = d["outcome"].as_str().map(|_| format!(" → {}", text(d, "outcome")));
    let action = painted(&text(d, "action"), screen);
    format!("{mac}  {vm:<wide$}  {action}  {reason}{}\n", became.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PIPE: Screen = Screen { is_terminal: false, colour: false };

    fn page() -> Value {
        json!({
            "made": "2999-05-31T16:34:39Z", "braked": "too many\u{1b}[2J", "decisions": [
                {"mac": "90:b8:d0:00:00:01", "vm": "a", "action": "delete", "reason": "leaked",
                 "napi": "cn_uuid here", "outcome": null,
                 "evidence": [{"guard": "vm_absent", "answer": "pass", "said": "gone"}]},
                {"mac": "90:b8:d0:00:00:04", "vm": "db", "action": "delete", "reason": "leaked",
                 "napi": "", "outcome": "done", "open": false,
                 "evidence": [{"guard": "vm_absent", "answer": "pass", "said": "gone"}]},
                {"mac": "90:b8:d0:00:00:02", "vm": "b", "action": "keep", "reason": "agree",
                 "napi": "", "outcome": null, "evidence": []}],
            "departed": [{"mac": "90:b8:d0:00:00:03", "vm": "c", "why": "settling"}],
            "approval": {"id": "9f3c", "expires_in_s": 840, "nics": [{}]}})
    }

    #[test]
    fn shows_nics_with_their_evidence() {
        assert_eq!(
            story(&page(), false, PIPE),
            "made now (2999-05-31T16:34:39Z)\n\
             90:b8:d0:00:00:01  a   delete     leaked\n\
             \x20   NAPI       cn_uuid here\n\
             \x20   vm_absent      pass  gone\n\
             90:b8:d0:00:00:03  c   departed   settling\n\
             finished since:\n\
             90:b8:d0:00:00:04  db  delete     leaked → done\n\
             1 more are kept as they are (--all shows them)\n\
             brake: too many\\u001b[2J\n\
             net-agent approve 9f3c   # 1 NIC as it is; 14m left\n"
        );
    }

    #[test]
    fn shows_a_row_for_each_nic() {
        let columns = Some("mac,action".to_owned());
        let layout = Layout { no_header: true, columns, ..Layout::default() };
        assert_eq!(
            rows(&page(), true, &layout, PIPE).unwrap(),
            "90:b8:d0:00:00:01  delete\n90:b8:d0:00:00:04  delete\n90:b8:d0:00:00:02  keep\n90:b8:d0:00:00:03  departed\n"
        );
        let layout = Layout { parsable: true, ..Layout::default() };
        assert_eq!(
            rows(&page(), false, &layout, PIPE).unwrap().lines().next(),
            Some("90\\:b8\\:d0\\:00\\:00\\:01:a:delete:leaked:")
        );
    }
}
