// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The list of nodes and the updates of one: which parameters they take. Pure.

use serde_json::{Value, json};

use super::node::{Node, Parts, number, object};
use super::refusal::{Kind, Params, Refusal, closed, require, word};

/// What a list takes.
const LISTED: [&str; 10] = [
    "setup",
    "reserved",
    "reservoir",
    "headnode",
    "hostname",
    "uuids",
    "extras",
    "fields",
    "limit",
    "offset",
];
/// What an update takes, and what each has to be.
const UPDATED: [(&str, Kind, bool); 19] = [
    ("agents", Kind::Array, false),
    ("boot_params", Kind::Object, false),
    ("boot_platform", Kind::Trimmed, false),
    ("comments", Kind::Trimmed, false),
    ("datacenter", Kind::Trimmed, false),
    ("default_console", Kind::Trimmed, false),
    ("etag_retries", Kind::Number, false),
    ("next_reboot", Kind::Trimmed, false),
    ("nics", Kind::Array, false),
    ("overprovision_ratios", Kind::Object, false),
    ("rack_identifier", Kind::Trimmed, false),
    ("reservation_ratio", Kind::Number, false),
    ("reserved", Kind::Flag, false),
    ("reservoir", Kind::Flag, false),
    ("serial", Kind::Trimmed, false),
    ("setting_up", Kind::Flag, false),
    ("setup", Kind::Flag, false),
    ("traits", Kind::Object, false),
    ("transitional_status", Kind::Trimmed, false),
];

/// Returns the records that a list asks for; `nodes` come in the order of their uuids.
pub(super) fn listed<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    query: &Params,
    now_ms: i64,
) -> Result<Vec<Params>, Refusal> {
    closed(query, &LISTED)?;
    let flags = flags(query)?;
    if let Some(fault) = query.get("hostname").and_then(|it| Kind::Trimmed.fault(Some(it))) {
        return Err(Refusal::field("hostname", fault));
    }
    let (uuids, extras) = (words(query, "uuids")?, words(query, "extras")?);
    let fields = words(query, "fields")?;
    let (limit, offset) = (limit(query)?, offset(query)?);
    let parts = extras.map_or_else(Parts::default, |extras| Parts::named(&extras.join(",")));
    let is_asked_for = |node: &&Node| {
        let uuid = word(&node.fields, "uuid");
        flags.iter().all(|(name, wanted)| node.is(name) == *wanted)
            && uuids.as_ref().is_none_or(|uuids| uuids.contains(&uuid))
            && query.get("hostname").is_none_or(|it| node.fields.get("hostname") == Some(it))
    };
    let shown = nodes.filter(is_asked_for).skip(offset).take(limit).map(|node| {
        let mut shown = node.shown(parts, now_ms);
        if let Some(fields) = &fields {
            shown.retain(|name, _| fields.contains(&name.as_str()));
        }
        shown
    });
    Ok(shown.collect())
}

fn invalid(name: &str) -> Refusal {
    Refusal::field(name, format!("Invalid value for param '{name}'"))
}

fn flags(query: &Params) -> Result<Vec<(&'static str, bool)>, Refusal> {
    let mut flags = Vec::new();
    for name in ["setup", "reserved", "reservoir", "headnode"] {
        let Some(value) = query.get(name) else { continue };
        match value.as_str().map(str::to_lowercase).as_deref() {
            Some("true") => flags.push((name, true)),
            Some("false") => flags.push((name, false)),
            _ => return Err(invalid(name)),
        }
    }
    Ok(flags)
}

/// Words between commas.
fn words<'a>(query: &'a Params, name: &str) -> Result<Option<Vec<&'a str>>, Refusal> {
    let Some(value) = query.get(name) else { return Ok(None) };
    let words: Vec<&str> = value.as_str().unwrap_or_default().split(',').collect();
    let is_bad = |word: &&str| word.is_empty() || word.contains(char::is_whitespace);
    if words.iter().any(is_bad) { Err(invalid(name)) } else { Ok(Some(words)) }
}

/// A list has so many records at most; two limits are one too many.
fn limit(query: &Params) -> Result<usize, Refusal> {
    let Some(value) = query.get("limit") else { return Ok(1000) };
    let Some(text) = value.as_str() else { return Err(Refusal::Dies) };
    let limit: i64 = text.parse().map_err(|_| invalid("limit"))?;
    match usize::try_from(limit) {
        Ok(limit @ 1..=1000) => Ok(limit),
        _ => {
            let why = "limit must be in the range 1-1000 (inclusive)".to_owned();
            Err(Refusal::Parameters(400, vec![("limit".to_owned(), why)]))
        }
    }
}

fn offset(query: &Params) -> Result<usize, Refusal> {
    let Some(value) = query.get("offset") else { return Ok(0) };
    let offset: i64 =
        value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| invalid("offset"))?;
    usize::try_from(offset).map_err(|_| {
        Refusal::storage(
            "findObjects expects \"options\" (args[2]) to be a valid options object: \
             options.offset should be >= 0",
        )
    })
}

/// Checks an update before anything is looked at.
pub(super) fn check_update(changes: &Params) -> Result<(), Refusal> {
    closed(changes, &UPDATED.map(|(name, ..)| name))?;
    require(changes, &UPDATED)?;
    if changes.contains_key("boot_params") || changes.contains_key("boot_platform") {
        return Err(Refusal::Dies);
    }
    if let Some(at) = changes.get("next_reboot").and_then(Value::as_str)
        && !at.is_empty()
        && !(at.len() == 24 && at.parse::<jiff::Timestamp>().is_ok())
    {
        let why = "Invalid date for next_reboot; not an ISO date format";
        return Err(Refusal::argument(why));
    }
    for (key, value) in object(changes.get("overprovision_ratios").unwrap_or(&Value::Null)) {
        let fault = match (key.as_str(), value.as_f64()) {
            ("cpu" | "ram" | "disk" | "net" | "io", Some(ratio)) if ratio >= 0.0 => continue,
            ("cpu" | "ram" | "disk" | "net" | "io", Some(_)) => format!("Invalid value for {key}"),
            ("cpu" | "ram" | "disk" | "net" | "io", None) => format!("Invalid type for {key}"),
            _ => format!("Invalid key {key}"),
        };
        return Err(Refusal::DiesAfter(Box::new(Refusal::argument(fault))));
    }
    Ok(())
}

/// Writes an update.
pub(super) fn update(node: &mut Node, changes: &Params) {
    for (name, value) in changes {
        match name.as_str() {
            "etag_retries" | "nics" | "overprovision_ratios" => {}
            "agents" => node.agents = value.clone(),
            "reservation_ratio" => {
                node.fields.insert(name.clone(), json!(number(Some(value))));
            }
            _ => {
                node.fields.insert(name.clone(), value.clone());
            }
        }
    }
    node.etag += 1;
}
