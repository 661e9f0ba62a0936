// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `status`, for people.

use daemon::agent::Counter as _;
use daemon::cli::pages::{count_lines, text, waiting_lines};
use daemon::cli::{Screen, facts};
use serde_json::Value;

use crate::status::Count;

/// Returns `/status` for people: one fact per line.
pub(super) fn status_lines(page: &Value, screen: Screen) -> String {
    let mut lines = waiting_lines(page, screen);
    let mbps = page["mbps"].as_u64().map_or("no limit".to_owned(), |mbps| format!("{mbps} Mbit/s"));
    lines.push(("limit", mbps));
    let migrations = page["migrations"].as_array().map_or(&[][..], Vec::as_slice);
    for it in migrations {
        let order = &it["order"];
        let doing = match order["order"]["name"].as_str() {
            Some(name) => format!("{name} {}", text(order, "state")),
            None => "no order since the start".to_owned(),
        };
        lines.push((
            "migration",
            format!(
                "{} of {}, the {}: {doing}",
                text(it, "migration"),
                text(it, "vm"),
                text(it, "end")
            ),
        ));
        if let (Some(current), Some(total)) =
            (order["progress"]["current"].as_u64(), order["progress"]["total"].as_u64())
        {
            let is_starting = (current, total) == (0, 0);
            let far = format!("{current} of {total} bytes");
            lines.push(("", if is_starting { "starting".to_owned() } else { far }));
        }
        if it["waits"] == true {
            let vm = text(it, "vm");
            lines.push((
                "",
                format!(
                    "it does not boot until migration-service answers; to boot it now: \
                     migration-agent release {vm}"
                ),
            ));
        }
    }
    for (key, name) in
        [("refused_requests", "requests refused"), ("refused_streams", "streams that failed")]
    {
        let counts = page[key].as_object().into_iter().flatten();
        let counts = counts.filter(|(_, count)| count.as_u64() != Some(0));
        let counts: Vec<String> =
            counts.map(|(reason, count)| format!("{count} {}", spoken(reason))).collect();
        if !counts.is_empty() {
            lines.push((name, counts.join(", ")));
        }
    }
    let certificate = &page["certificate"];
    if let Some(until) = certificate["until"].as_str() {
        lines.push(("certificate", format!("valid until {until}")));
    }
    if let Some(needs) = certificate["needs"].as_str() {
        lines.push(("", needs.to_owned()));
    }
    lines.extend(count_lines(page, Count::ALL.iter().map(|count| count.name()), screen));
    facts(&lines)
}

/// Returns a reason as people read it.
fn spoken(reason: &str) -> String {
    match reason {
        "receipt" => "not confirmed by the other node".to_owned(),
        "not_allowed" => "not allowed to the sender".to_owned(),
        other => other.replace('_', " "),
    }
}
