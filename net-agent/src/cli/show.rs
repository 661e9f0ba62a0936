// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ping`, `status`, `nic`: ask the running agent; `nic` is answered here if no agent runs. Nothing
//! here writes to NAPI.

use anyhow::anyhow;
use daemon::cli::control::{self, ControlError};
use daemon::cli::pages::{self, fields, page, text, to_the_second};
use daemon::cli::screen::visible;
use daemon::cli::{Layout, Progress, Screen, Tone, facts};
use sdc_clients::MacAddr;
use serde_json::Value;

use super::args::Files;
use super::common::{NAME, Usage, load, runtime};
use super::output::{evidence, painted};
use crate::agent::Agent;
use crate::status::Count;

pub(super) fn ping(files: &Files, json: bool, screen: Screen) -> anyhow::Result<String> {
    let listen = load(files)?.places.status_listen;
    Ok(runtime()?.block_on(pages::ping(NAME, listen, json, screen))?)
}

pub(super) fn status(files: &Files, layout: &Layout, screen: Screen) -> anyhow::Result<String> {
    let config = load(files)?;
    let page = runtime()?.block_on(page(NAME, config.places.status_listen, "status"))?;
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
        lines
            .push(("waiting for", screen.paint(Tone::Odd, &visible(what.as_str().unwrap_or("-")))));
    }
    for (key, name) in [("brake", "brake"), ("memory", "memory fault")] {
        if page[key].is_string() {
            lines.push((name, screen.paint(Tone::Bad, &text(page, key))));
        }
    }
    for hold in items("holds") {
        let what = hold["vm"].as_str().map_or_else(|| "the whole node".to_owned(), visible);
        let until = hold["until"]
            .as_str()
            .map_or("until released".to_owned(), |at| format!("until {}", to_the_second(at)));
        lines.push((
            "hold",
            screen.paint(Tone::Odd, &format!("{what} {until}: {}", text(hold, "reason"))),
        ));
    }
    lines.push(("VMs", number("vms").to_string()));
    lines.push(("NICs", format!("{} in NAPI's last list", number("listed"))));
    if number("unreadable") > 0 {
        let first = items("unreadable_nics").first().and_then(Value::as_str).unwrap_or("-");
        let text = format!("{}, the first: {}", number("unreadable"), visible(first));
        lines.push(("unreadable", screen.paint(Tone::Odd, &text)));
    }
    let last = page["last_pass"].as_str().map_or("none yet".to_owned(), to_the_second);
    lines.push(("passes", format!("{}, the last {last}", number("pass"))));
    lines.push((
        "undecided",
        format!("{} look leaked, {} left the node", number("candidates"), items("departed").len()),
    ));
    let names = Count::ALL.iter().map(|count| count.name());
    let done = names.filter(|name| !matches!(*name, "listed" | "unreadable") && number(name) > 0);
    let done: Vec<String> = done.map(|name| format!("{name} {}", number(name))).collect();
    lines.push(("so far", if done.is_empty() { "nothing".to_owned() } else { done.join(", ") }));
    if page["last_error"].is_string() {
        let at = page["last_error_at"].as_str().map_or("-".to_owned(), to_the_second);
        let error = format!("{at} {}", text(page, "last_error"));
        lines.push(("last error", screen.paint(Tone::Bad, &error)));
    }
    facts(&lines)
}

pub(super) fn nic(
    files: &Files,
    mac: &str,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    let mac: MacAddr = mac.parse().map_err(|err| anyhow!(Usage(format!("{mac}: {err}"))))?;
    let config = load(files)?;
    let said = runtime()?.block_on(async {
        let _shown = Progress::begin("looking at the node, NAPI and VMAPI");
        match control::ask(&config.places.control_socket, "GET", &format!("/nics/{mac}"), None)
            .await
        {
            Err(ControlError::Absent { .. }) => {
                let mut said = Agent::new(config)?.explain_offline(mac).await;
                said["mute"] = "the daemon is not running: nothing is written".into();
                Ok(said)
            }
            answer => answer.map_err(anyhow::Error::from),
        }
    })?;
    if layout.asks_for_table() {
        return Ok(fields(&said, layout, screen)?);
    }
    if layout.json {
        return Ok(screen.harmless(&format!("{said:#}\n")));
    }
    let mut out = String::new();
    for key in ["mac", "napi", "etag", "node", "vmapi", "hold", "departed", "brake", "mute"] {
        let shown = match &said[key] {
            Value::Null => "-".to_owned(),
            Value::String(text) => visible(text),
            value => visible(&value.to_string()),
        };
        out += &format!("{key:<9} {shown}\n");
    }
    out += &evidence(&said);
    out += &format!("{} {}\n", painted(&text(&said, "action"), screen), text(&said, "reason"));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shows_a_status_for_people() {
        let page = json!({
            "mute": "report mode", "waiting_for": ["vminfod"], "brake": null, "memory": null,
            "holds": [{"reason": "a\u{7}", "since": "x"}], "vms": 3, "listed": 7, "pass": 1,
            "last_pass": "2026-05-31T16:34:39.123456789Z", "candidates": 2, "departed": [{}], "reaped": 4,
            "last_error": null,
        });
        let screen = Screen { is_terminal: true, colour: false };
        assert_eq!(
            status_lines(&page, screen),
            "state        writes nothing: report mode\n\
             waiting for  vminfod\n\
             hold         the whole node until released: a\\u0007\n\
             VMs          3\n\
             NICs         7 in NAPI's last list\n\
             passes       1, the last 2026-05-31T16:34:39Z\n\
             undecided    2 look leaked, 1 left the node\n\
             so far       reaped 4\n"
        );
    }
}
