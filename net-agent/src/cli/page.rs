// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Pages of the running agent, and how their words are written for people.

use anyhow::{Context as _, anyhow};
use daemon::cli::screen::visible;
use daemon::cli::{Screen, Tone};
use sdc_clients::http::Call;
use sdc_clients::{Class, Http};
use serde_json::Value;

use crate::config::Config;

/// A page of the loopback port.
pub(super) async fn page(config: &Config, name: &'static str) -> anyhow::Result<Value> {
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

/// A text of a page, harmless for a terminal.
pub(super) fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).map_or_else(|| "-".to_owned(), visible)
}

/// What each guard said, one line each.
pub(super) fn evidence(value: &Value) -> String {
    let list = value.get("evidence").and_then(Value::as_array);
    let lines = list.into_iter().flatten().map(|e| {
        format!("    {:<4} {:<5} {}\n", text(e, "guard"), text(e, "answer"), text(e, "said"))
    });
    lines.collect()
}

/// An action's word, as wide as the longest, in its colour.
pub(super) fn painted(action: &str, screen: Screen) -> String {
    let wide = format!("{action:<9}");
    tone(action).map_or_else(|| wide.clone(), |tone| screen.paint(tone, &wide))
}

/// How good news an action is.
pub(super) fn tone(action: &str) -> Option<Tone> {
    match action {
        "delete" => Some(Tone::Bad),
        "defer" | "ask-vmapi" => Some(Tone::Odd),
        "write" | "look" => Some(Tone::Good),
        _ => None,
    }
}
