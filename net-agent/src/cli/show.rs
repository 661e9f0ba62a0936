// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ping`, `status`, `nic`: ask the running agent; `nic` is answered here if no agent runs. Nothing
//! here writes to NAPI.

use anyhow::anyhow;
use daemon::agent::Counter as _;
use daemon::cli::control::{self, ControlError};
use daemon::cli::pages::{self, count_lines, named_fields, state_lines, text, to_the_second};
use daemon::cli::screen::visible;
use daemon::cli::{Layout, Progress, Screen, Tone, Usage, facts, left};
use jiff::{SignedDuration, Timestamp};
use sdc_clients::MacAddr;
use serde_json::Value;

use super::output::{evidence, painted};
use crate::agent::Agent;
use crate::config::Config;
use crate::status::Count;

/// A hold that ends within this time is said to end soon.
const SOON: SignedDuration = SignedDuration::from_mins(15);

/// Returns when a hold ends, and how soon if that is soon.
fn ends(at: Timestamp) -> String {
    let now = daemon::wall::now();
    let soon = if at.duration_since(now) < SOON { "ENDS SOON, " } else { "" };
    format!("{soon}until {at:.0} (in {})", left(at, now))
}

/// Returns `/status` for people: one fact per line.
pub(super) fn status_lines(page: &Value, screen: Screen) -> String {
    let items = |key: &str| page[key].as_array().map_or(&[][..], Vec::as_slice);
    let number = |key: &str| page[key].as_u64().unwrap_or_default();
    let mut state = page.clone();
    if page["mute"].is_null() && items("holds").iter().any(|hold| hold["vm"].is_null()) {
        state["mute"] = "the whole node is held: net-agent release".into();
    }
    let mut lines = state_lines(&state, screen);
    for hold in items("holds") {
        let what = hold["vm"].as_str().map_or_else(|| "the whole node".to_owned(), visible);
        let until = hold["until"]
            .as_str()
            .and_then(|at| at.parse::<Timestamp>().ok())
            .map_or("until released".to_owned(), ends);
        lines.push((
            "hold",
            screen.paint(
                Tone::Odd,
                &format!("{what} {until}, by {}: {}", text(hold, "by"), text(hold, "reason")),
            ),
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
    let names = names.filter(|name| !matches!(*name, "listed" | "unreadable"));
    lines.extend(count_lines(page, names, screen));
    facts(&lines)
}

pub(super) async fn nic(
    config: Config,
    mac: &str,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    let mac: MacAddr = mac.parse().map_err(|err| anyhow!(Usage(format!("{mac}: {err}"))))?;
    let shown = Progress::begin("looking at the node, NAPI and VMAPI");
    let (socket, target) = (&config.basics.places.control_socket, format!("/nics/{mac}"));
    let said = match control::ask(socket, "GET", &target, None, "mac").await {
        Err(ControlError::Absent { .. }) => {
            let mut said = Agent::new(config)?.explain_offline(mac).await;
            said["mute"] = "the daemon is not running: nothing is written".into();
            said
        }
        answer => answer?,
    };
    drop(shown);
    let people = Screen { is_terminal: true, ..screen };
    Ok(pages::shown(&said, layout, people, |said, _| {
        const FIELDS: [&str; 10] = [
            "mac", "napi", "etag", "node", "vmapi", "hold", "departed", "history", "brake", "mute",
        ];
        let action = painted(&text(said, "action"), screen);
        let verdict = format!("{action} {}\n", text(said, "reason"));
        named_fields(said, &FIELDS) + &evidence(said) + &verdict
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shows_a_status_for_people() {
        let page = json!({
            "mute": "report mode", "waiting_for": ["vminfod"], "brake": null, "memory": null,
            "holds": [{"reason": "a\u{7}", "by": "alice", "since": "x"}], "vms": 3, "listed": 7, "pass": 1,
            "last_pass": "2026-05-31T16:34:39.123456789Z", "candidates": 2, "departed": [{}], "reaped": 4,
            "last_error": null,
        });
        let screen = Screen { is_terminal: true, colour: false };
        assert_eq!(
            status_lines(&page, screen),
            "state        writes nothing: report mode\n\
             waiting for  vminfod\n\
             hold         the whole node until released, by alice: a\\u0007\n\
             VMs          3\n\
             NICs         7 in NAPI's last list\n\
             passes       1, the last 2026-05-31T16:34:39Z\n\
             undecided    2 look leaked, 1 left the node\n\
             so far       reaped 4\n"
        );
        let of = |vm: Value| json!({"mute": null, "holds": [{"vm": vm, "reason": "r", "by": "b"}]});
        let state = |page: &Value| status_lines(page, screen).lines().next().unwrap().to_owned();
        let held = "state      writes nothing: the whole node is held: net-agent release";
        assert_eq!(state(&of(Value::Null)), held, "a node that is held is not written for");
        assert_eq!(state(&of("u".into())), "state      writing");
        let silent = json!({"mute": null, "waiting_for": ["waiting for NAPI, for 7 s: 503"]});
        let lines = status_lines(&silent, screen);
        assert!(
            lines.starts_with("state        waiting\nwaiting for  NAPI, for 7 s: 503\n"),
            "{lines}"
        );
    }
}
