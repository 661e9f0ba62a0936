// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Formats `/status` as `vminfo status` prints it. Pure.

use std::fmt::Write;

use serde_json::Value;

use crate::cli::vmadm::value::{at, compact, items, text_form};

/// The whole text.
pub(super) fn lines(status: &Value) -> String {
    let at = |path: &str| at(status, path);
    let shown = |path: &str| shown(at(path));
    let count = |path: &str| items(at(path)).len();
    let mut text = String::new();
    let mut line = |what: std::fmt::Arguments<'_>| {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "{what}");
    };
    line(format_args!("state: {} ({})", shown("state"), shown("status")));
    line(format_args!("pid: {}", shown("pid")));
    line(format_args!("uptime: {}", shown("uptime")));
    line(format_args!("rss: {}mb", mib(at("memory.rss"))));
    line(format_args!("numVms: {}", shown("numVms")));
    line(format_args!("queue"));
    line(format_args!("  paused: {}", shown("queue.paused")));
    line(format_args!("  idle: {}", shown("queue.idle")));
    line(format_args!("  npending: {}", shown("queue.vasync_queue.npending")));
    line(format_args!("  nqueued: {}", shown("queue.vasync_queue.nqueued")));
    line(format_args!("fullRefresh"));
    line(format_args!("  lastRefresh: {}", shown("lastRefresh")));
    let (errors, log) = (items(at("refreshErrors")), items(at("refreshLog")));
    if !errors.is_empty() {
        // The shipped tool prints its format, and the number on a line of its own.
        line(format_args!("  refreshErrors: (%d items)\n{}", errors.len()));
        for error in errors {
            line(format_args!("    - {} ({})", field(error, "err"), field(error, "ago")));
        }
    }
    if !log.is_empty() {
        line(format_args!("  refreshLog: ({} items)", log.len()));
        for entry in log {
            let changes = |key| items(entry.get(key)).len();
            let (cache, vms) = (changes("cacheChanges"), changes("vmChanges"));
            let ago = field(entry, "endedAgo");
            line(format_args!("    - {cache} cacheChanges / {vms} vmChanges - {ago} ago"));
        }
    }
    if at("fswatcher").is_some_and(|watcher| !watcher.is_null()) {
        line(format_args!("fswatcher"));
        line(format_args!("  running: {}", shown("fswatcher.running")));
        line(format_args!("  pid: {}", shown("fswatcher.watcher_pid")));
        line(format_args!("  watching: {}", count("fswatcher.watching")));
        line(format_args!("  tryingToWatch: {}", count("fswatcher.not_yet_watching")));
        line(format_args!("  pendingActions: {}", count("fswatcher.pending_actions")));
    }
    line(format_args!("eventsListeners: ({} listeners)", count("eventsListeners")));
    for (uuid, listener) in at("eventsListeners").and_then(Value::as_object).into_iter().flatten() {
        line(format_args!("  - {}", user_agent(listener)));
        line(format_args!("    {uuid} created {} ago\n", field(listener, "createdAgo")));
    }
    text
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "undefined".to_owned(),
        Some(value) => text_form(value).unwrap_or_else(|| "null".to_owned()),
    }
}

fn field(value: &Value, key: &str) -> String {
    shown(value.get(key))
}

/// Bytes as MiB with two decimals, halves rounded up.
fn mib(bytes: Option<&Value>) -> String {
    match bytes.and_then(Value::as_u64) {
        Some(bytes) => {
            let hundredths = (u128::from(bytes) * 200 + (1 << 20)) >> 21;
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        }
        None => format!("{:.2}", bytes.and_then(Value::as_f64).unwrap_or(f64::NAN) / 1_048_576.0),
    }
}

/// The user agent with JSON escapes, except for quotation marks.
fn user_agent(listener: &Value) -> String {
    let Some(agent) = listener.get("userAgent").and_then(Value::as_str) else {
        return "-".to_owned();
    };
    let quoted = compact(agent);
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(&quoted).replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts() {
        for (bytes, text) in [(27_430_912u64, "26.16"), (27_394_048, "26.13"), (0, "0.00")] {
            assert_eq!(mib(Some(&json!(bytes))), text);
        }
        assert_eq!(mib(None), "NaN");
    }

    #[test]
    fn a_bare_status() {
        let text = lines(&json!({"state": "running", "lastRefresh": null}));
        assert!(text.starts_with("state: running (undefined)\n"), "{text}");
        assert!(text.ends_with("  lastRefresh: null\neventsListeners: (0 listeners)\n"), "{text}");
    }
}
