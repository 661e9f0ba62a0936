// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How guards and actions are shown.

use daemon::cli::pages::text;
use daemon::cli::{Screen, Tone};
use serde_json::Value;

/// Returns one line for each guard.
pub(super) fn evidence(value: &Value) -> String {
    let list = value.get("evidence").and_then(Value::as_array);
    let lines = list.into_iter().flatten().map(|e| {
        format!("    {:<14} {:<5} {}\n", text(e, "guard"), text(e, "answer"), text(e, "said"))
    });
    lines.collect()
}

/// Returns an action padded to the longest, in its colour.
pub(super) fn painted(action: &str, screen: Screen) -> String {
    let wide = format!("{action:<9}");
    tone(action).map_or_else(|| wide.clone(), |tone| screen.paint(tone, &wide))
}

/// Returns the colour of an action.
pub(super) fn tone(action: &str) -> Option<Tone> {
    match action {
        "delete" => Some(Tone::Bad),
        "defer" | "ask-vmapi" => Some(Tone::Odd),
        "write" | "look" => Some(Tone::Good),
        _ => None,
    }
}
