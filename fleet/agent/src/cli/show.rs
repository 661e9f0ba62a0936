// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `status`: asks the running agent.

use daemon::agent::Counter as _;
use daemon::cli::pages::{count_lines, text, to_the_second, waiting_lines};
use daemon::cli::screen::Tone;
use daemon::cli::{Screen, facts};
use serde_json::Value;

use crate::status::Count;

/// Returns `/status` for people: one fact per line.
pub(super) fn status_lines(page: &Value, screen: Screen) -> String {
    let state = match page["publishes"].as_bool() {
        Some(true) => screen.paint(Tone::Good, "publishing this node"),
        _ => screen.paint(Tone::Odd, "publishes nothing"),
    };
    let mut lines = vec![("state", state)];
    lines.extend(waiting_lines(page, screen));
    lines.push(("VMs", page["vms"].to_string()));
    lines.push(("last event", text(page, "position")));
    let last = page["last_published"].as_str().map_or("-".to_owned(), to_the_second);
    lines.push(("published", last));
    let names = Count::ALL.iter().map(|count| count.name());
    lines.extend(count_lines(page, names, screen));
    facts(&lines)
}
