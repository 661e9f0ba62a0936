// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Pages of a running agent, read from its loopback port, and how they are shown.

use std::time::Duration;

use sdc_clients::http::Call;
use sdc_clients::{Class, Http};
use serde_json::Value;

use super::screen::{Screen, Tone, visible};
use super::span::span;
use super::table::{Layout, Table, UnknownColumn, facts, plain};

/// A page that takes longer than this does not come.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum NoPage {
    /// Nothing listens.
    #[error("{program} is not running: nothing answers on {base}")]
    Absent { program: &'static str, base: String },
    /// Something listens, and says nothing.
    #[error("{program} does not answer: nothing came within {} from {base}", span(PATIENCE))]
    Late { program: &'static str, base: String },
    /// It does not answer as it should.
    #[error("cannot read a page of {0}")]
    Broken(String, #[source] sdc_clients::Error),
    /// Something else listens there.
    #[error("another program than {program} answers on {base}")]
    Another { program: &'static str, base: String },
}

/// Reads a page, such as `status`, of `program` at this base URL. The page always has the field `mark`:
/// without it, another program answers.
pub async fn page(
    program: &'static str,
    base: &str,
    name: &str,
    mark: &str,
) -> Result<Value, NoPage> {
    let broken = |error| NoPage::Broken(base.to_owned(), error);
    let http = Http::new(base, &format!("{program}-cli")).map_err(broken)?.without_retries();
    let answer = http.execute(Call::get(&[name]).timeout(PATIENCE)).await;
    let answer = answer.and_then(|reply| reply.json::<Value>("a JSON page"));
    let page = answer.map_err(|error| match error.class() {
        Class::Connect => NoPage::Absent { program, base: base.to_owned() },
        Class::Timeout(_) => NoPage::Late { program, base: base.to_owned() },
        _ => broken(error),
    })?;
    match page.get(mark) {
        Some(_) => Ok(page),
        None => Err(NoPage::Another { program, base: base.to_owned() }),
    }
}

/// Asks `program` whether it is there. Returns what is printed.
pub async fn ping(
    program: &'static str,
    base: &str,
    json: bool,
    screen: Screen,
) -> Result<String, NoPage> {
    let answer = page(program, base, "ping", "ping").await?;
    if answer["ping"] != "pong" {
        return Err(NoPage::Another { program, base: base.to_owned() });
    }
    Ok(match screen.is_terminal && !json {
        true => screen.paint(Tone::Good, "pong") + "\n",
        false => format!("{answer:#}\n"),
    })
}

/// Returns a text of a page with control characters escaped.
pub fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).map_or_else(|| "-".to_owned(), visible)
}

/// The columns of a table of fields.
pub const FIELDS: [&str; 2] = ["field", "value"];

/// Returns one row for each field of an object.
/// Fails if a column that is asked for does not exist.
pub fn fields(object: &Value, layout: &Layout, screen: Screen) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&FIELDS);
    for (key, value) in object.as_object().into_iter().flatten() {
        leaves(key.clone(), value, &mut table);
    }
    table.print(layout, screen)
}

/// Adds a row for each value that has no names inside: `nics.0.mac`.
fn leaves(path: String, value: &Value, table: &mut Table) {
    let below = |name: &str| format!("{path}.{name}");
    match value {
        Value::Object(all) if !all.is_empty() => {
            all.iter().for_each(|(name, value)| leaves(below(name), value, table));
        }
        Value::Array(all) if all.iter().any(|value| value.is_object() || value.is_array()) => {
            let numbered = all.iter().enumerate();
            numbered.for_each(|(at, value)| leaves(below(&at.to_string()), value, table));
        }
        value => table.row(vec![path.into(), value.clone().into()]),
    }
}

/// Returns a page as a table if the flags ask for one, as `lines` on a terminal, else as JSON.
/// Fails if a column that is asked for does not exist.
pub fn shown(
    page: &Value,
    layout: &Layout,
    screen: Screen,
    lines: impl FnOnce(&Value, Screen) -> String,
) -> Result<String, UnknownColumn> {
    if layout.asks_for_table() {
        return fields(page, layout, screen);
    }
    Ok(match screen.is_terminal && !layout.json {
        true => lines(page, screen),
        false => screen.harmless(&format!("{page:#}\n")),
    })
}

/// Returns the first lines of an agent's status: whether it writes, what it waits for, what is wrong. An agent that
/// may write and waits for a service writes nothing to it.
pub fn state_lines(page: &Value, screen: Screen) -> Vec<(&'static str, String)> {
    let state = match page["mute"].as_str() {
        None if page["brake"].is_string() => {
            screen.paint(Tone::Bad, "the brake is on; all that it does not block goes on")
        }
        None if page["waiting_for"].as_array().is_some_and(|all| !all.is_empty()) => {
            screen.paint(Tone::Odd, "waiting")
        }
        None => screen.paint(Tone::Good, "writing"),
        Some(why) => screen.paint(Tone::Odd, &format!("writes nothing: {}", visible(why))),
    };
    let mut lines = vec![("state", state)];
    lines.extend(waiting_lines(page, screen));
    for (key, name) in [("brake", "brake"), ("memory", "memory fault")] {
        if page[key].is_string() {
            lines.push((name, screen.paint(Tone::Bad, &text(page, key))));
        }
    }
    if let Some(by) = page["approved"]["by"].as_str() {
        let number = |key: &str| page["approved"][key].as_u64().unwrap_or_default();
        let ago = span(Duration::from_secs(number("ago_s")));
        let (count, left) = (number("count"), number("left"));
        let approved = format!("{count} by {} {ago} ago, {left} of them left", visible(by));
        lines.push(("approved", screen.paint(Tone::Odd, &approved)));
    }
    lines
}

/// Returns the lines of an agent's status that say what it waits for.
pub fn waiting_lines(page: &Value, screen: Screen) -> Vec<(&'static str, String)> {
    let all = page["waiting_for"].as_array().into_iter().flatten();
    let name = |what: &Value| {
        let what = what.as_str().unwrap_or("-");
        visible(what.strip_prefix("waiting for ").unwrap_or(what))
    };
    let what = all.map(name);
    what.map(|what| ("waiting for", screen.paint(Tone::Odd, &what))).collect()
}

/// Returns the last lines of an agent's status: what it has counted under these names, and what went wrong
/// last.
pub fn count_lines<'a>(
    page: &Value,
    names: impl Iterator<Item = &'a str>,
    screen: Screen,
) -> Vec<(&'static str, String)> {
    let number = |name: &str| page[name].as_u64().unwrap_or_default();
    let names = names.filter(|name| number(name) > 0);
    let done: Vec<String> = names.map(|name| format!("{name} {}", number(name))).collect();
    let done = if done.is_empty() { "nothing".to_owned() } else { done.join(", ") };
    let mut lines = vec![("so far", done)];
    if page["last_error"].is_string() {
        let at = page["last_error_at"].as_str().map_or("-".to_owned(), to_the_second);
        let error = format!("{at} {}", text(page, "last_error"));
        lines.push(("last error", screen.paint(Tone::Bad, &error)));
    }
    lines
}

/// Returns these fields of a page, one per line; a field of an object has a line of its own, such as `napi.state`,
/// and none if it is null.
pub fn named_fields(page: &Value, names: &[&'static str]) -> String {
    let mut lines = Vec::new();
    for name in names {
        match &page[*name] {
            Value::Object(all) => below(name, all, &mut lines),
            value => lines.push(((*name).to_owned(), plain(value))),
        }
    }
    let lines: Vec<_> = lines.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    facts(&lines)
}

fn below(name: &str, all: &serde_json::Map<String, Value>, lines: &mut Vec<(String, String)>) {
    for (key, value) in all.iter().filter(|(_, value)| !value.is_null()) {
        let name = format!("{name}.{}", visible(key));
        match value {
            Value::Object(all) => below(&name, all, lines),
            value => lines.push((name, plain(value))),
        }
    }
}

/// Returns a timestamp without its fraction, and any other text as it is.
pub fn to_the_second(time: &str) -> String {
    time.parse::<jiff::Timestamp>().map_or_else(|_| visible(time), |at| format!("{at:.0}"))
}
