// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Values of parameters, and the errors for bad ones: in the words of the deployed service.

use serde_json::{Map, Value};

use super::refused::{Cause, Refused};
use super::script::{string, type_of};
use super::volume::{State, TYPE};
use vm_model::parse::text::is_lower_uuid;

/// The longest name of a volume, in characters.
const NAME: usize = 256;

/// Parameters by name, in the order in which they came.
pub type Params = Map<String, Value>;

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Causes(pub(super) Vec<Cause>);

impl Causes {
    pub(super) fn add(&mut self, text: impl Into<String>) {
        self.0.push(Cause::Parameter(text.into()));
    }

    /// Adds the check's error.
    pub(super) fn check(&mut self, checked: Result<(), String>) {
        if let Err(text) = checked {
            self.add(text);
        }
    }

    /// Looks for parameters that are missing or unknown.
    pub(super) fn names(&mut self, params: &Params, required: &[&str], optional: &[&str]) {
        for name in required.iter().filter(|name| !params.contains_key(**name)) {
            self.add(format!("missing mandatory parameter: {name}"));
        }
        let is_known = |name: &str| required.contains(&name) || optional.contains(&name);
        for name in params.keys().filter(|name| !is_known(name)) {
            self.add(format!("invalid parameter: {name}"));
        }
    }

    pub(super) fn done(self) -> Result<(), Refused> {
        if self.0.is_empty() { Ok(()) } else { Err(Refused::Invalid(self.0)) }
    }
}

/// A parameter that is a text.
pub(super) fn text(params: &Params, name: &str) -> Option<String> {
    params.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// The same, empty where there is none.
pub(super) fn given(params: &Params, name: &str) -> String {
    text(params, name).unwrap_or_default()
}

/// Checks a value that may be absent.
pub(super) fn optional(
    causes: &mut Causes,
    params: &Params,
    name: &str,
    check: impl Fn(Option<&Value>) -> Result<(), String>,
) {
    if params.contains_key(name) {
        causes.check(check(params.get(name)));
    }
}

/// Checks uuids that are there.
pub(super) fn uuids(causes: &mut Causes, params: &Params, names: &[(&str, &str)]) {
    for (name, what) in names {
        optional(causes, params, name, |value| uuid(value, what));
    }
}

/// A uuid; `what` is its name in the message.
pub(super) fn uuid(value: Option<&Value>, what: &str) -> Result<(), String> {
    match value {
        Some(Value::String(text)) if is_lower_uuid(text) => Ok(()),
        value => Err(format!("{} is not a valid {what} UUID", string(value))),
    }
}

/// The name of a volume.
pub(super) fn name(value: Option<&Value>) -> Result<(), String> {
    let Some(Value::String(name)) = value else {
        return Err("volume name must be a string".to_owned());
    };
    if name.chars().count() > NAME {
        return Err(format!("volume name is too long, max length is {NAME}"));
    }
    let mut characters = name.chars();
    let starts_well = characters.next().is_some_and(|c| c.is_ascii_alphanumeric());
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if starts_well && name.len() >= 2 && characters.all(is_fit) {
        return Ok(());
    }
    Err(r"volume name must match /^[a-zA-Z0-9][a-zA-Z0-9_\.\-]+$/".to_owned())
}

/// A size in MiB.
pub(super) fn size(value: Option<&Value>) -> Result<(), String> {
    match value {
        Some(Value::Number(n)) if n.as_f64().is_some_and(|n| n > 0.0) => Ok(()),
        value => Err(format!(
            "Volume size: \"{}\" is not a valid volume size. Size must be a number > 0",
            string(value)
        )),
    }
}

/// The type of a volume.
pub(super) fn kind(value: Option<&Value>) -> Result<(), String> {
    match value {
        Some(Value::String(text)) if text == TYPE => Ok(()),
        value => Err(format!("Volume type: {} is not supported", string(value))),
    }
}

/// The state of a volume: one that the deployed service has, or also RFD 26's.
pub(super) fn state(value: Option<&Value>, rfd26: bool) -> Result<(), String> {
    let state = value.and_then(Value::as_str).and_then(|text| text.parse::<State>().ok());
    match value {
        Some(_) if state.is_some_and(|state| rfd26 || state != State::RollingBack) => Ok(()),
        value => Err(format!("Volume state: {} is invalid", string(value))),
    }
}

/// Labels: texts by name. A list of texts passes, as deployed.
pub(super) fn labels(value: &Value) -> Result<(), String> {
    let entries: Vec<&Value> = match value {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        other => {
            let kind = type_of(Some(other));
            return Err(format!("Volume labels must be an object: {kind} is not supported"));
        }
    };
    match entries.into_iter().find(|entry| !entry.is_string()) {
        None => Ok(()),
        Some(entry) => Err(format!(
            "Volume entries can only be strings,received name type: string, value type: {}",
            type_of(Some(entry))
        )),
    }
}

/// Tags: texts by name.
pub(super) fn tags(value: Option<&Value>) -> Result<(), String> {
    match value {
        Some(Value::Object(tags)) if tags.values().all(Value::is_string) => Ok(()),
        _ => Err("tags must be an object of strings".to_owned()),
    }
}

/// `true` or `false`, also as a text; absent is false.
pub(super) fn flag(params: &Params, name: &str) -> Result<bool, String> {
    match params.get(name) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
        value => Err(format!("{} is not a valid boolean value for {name}.", string(value))),
    }
}

/// The networks of a volume: what is wrong with each.
pub(super) fn networks(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) if !items.is_empty() => {
            items.iter().filter_map(|item| uuid(Some(item), "network").err()).collect()
        }
        _ => vec!["networks must be a non-empty array".to_owned()],
    }
}

/// A name to search for: `*` may stand at either end.
pub(super) fn name_pattern(value: &Value) -> Result<(), String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let text = value.as_str().unwrap_or_default();
    let core = text.strip_prefix('*').unwrap_or(text);
    let core = core.strip_suffix('*').unwrap_or(core);
    if !core.is_empty() && core.chars().all(is_fit) {
        return Ok(());
    }
    Err("invalid value for name search parameter".to_owned())
}

/// A size to search for, as text.
pub(super) fn size_text(value: &Value) -> Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    if !text.starts_with('0') && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(());
    }
    Err("invalid value for size search parameter, must match /^[1-9][0-9]*$/".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // V5
    fn names_have_2_to_256_characters_and_begin_with_a_letter_or_a_digit() {
        for (text, is_name) in [
            ("ab".to_owned(), true),
            ("0.x_y-z".to_owned(), true),
            ("a".repeat(256), true),
            ("a".repeat(257), false),
            ("a".to_owned(), false),
            (String::new(), false),
            ("-ab".to_owned(), false),
            ("ab\n".to_owned(), false),
            ("ab*".to_owned(), false),
            ("äb".to_owned(), false),
        ] {
            assert_eq!(name(Some(&json!(text))).is_ok(), is_name, "{text:?}");
        }
        assert!(name(None).is_err() && name(Some(&json!(null))).is_err());
    }

    #[test] // V6
    fn a_search_for_names_has_stars_at_its_ends_only() {
        for (text, is_pattern) in [
            ("a", true),
            ("*a", true),
            ("a*", true),
            ("*a*", true),
            ("*", false),
            ("**", false),
            ("***", false),
            ("", false),
            ("a*b", false),
            ("(", false),
        ] {
            assert_eq!(name_pattern(&json!(text)).is_ok(), is_pattern, "{text:?}");
        }
    }
}
