// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Pages of the running agent, and how they are shown.

use anyhow::{Context as _, anyhow};
use daemon::cli::screen::visible;
use daemon::cli::{Screen, Tone};
use sdc_clients::http::Call;
use sdc_clients::{Class, Http};
use serde_json::Value;

use crate::config::Config;

/// Reads a page from the loopback port.
pub(super) async fn page(config: &Config, name: &'static str) -> anyhow::Result<Value> {
    let base = format!("http://{}", config.places.status_listen);
    let http = Http::new(&base, "net-agent-cli")?.without_retries();
    let answer = http.execute(Call::get(&[name])).await;
    let answer = answer.and_then(|reply| reply.json::<Value>("a JSON page"));
    if answer.as_ref().is_err_and(|err| err.class() == Class::Connect) {
        return Err(anyhow!(
            "the daemon is not running: nothing answers on {}",
            config.places.status_listen
        ));
    }
    answer.with_context(|| format!("no answer from the daemon at {}", config.places.status_listen))
}

/// Returns a text of a page with control characters escaped.
pub(super) fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).map_or_else(|| "-".to_owned(), visible)
}

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
