// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's `zonecfg`, as far as it is given commands on its command line: `zonecfg -z ZONE 'COMMAND; COMMAND'`. All
//! of them are checked before the configuration is written, and one that is wrong leaves it as it was.

use crate::error::NodeError;
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::Node;
use crate::xml::Element;

/// The resource that is being described, in the scope that `add` and `select` open.
enum Scope {
    Global,
    /// An attribute that there is, by its name, with its new value.
    Selected(String, Option<String>),
    /// A new one, with its name and its value.
    Added(Option<String>, Option<String>),
    /// A dataset that is delegated, with its name.
    Delegated(Option<String>),
}

/// Runs `zonecfg`.
pub(crate) fn zonecfg(node: &Node, args: &[String]) -> Ended {
    let usage = || Failed(2, "usage: zonecfg -z zone subcommand".to_owned());
    let parsed = Parsed::read(args, "", "z").map_err(|_| usage())?;
    let zone = parsed.value('z').ok_or_else(usage)?;
    let line = parsed.operands.join(" ");
    let before = node
        .zone_config(zone)
        .map_err(|_| Failed(1, format!("{zone}: No such zone configured")))?;
    let mut after = before.clone();
    let printed = apply(&mut after, &line).map_err(|why| Failed(1, format!("{zone}: {why}")))?;
    if after != before {
        let written = node
            .zone_reconfigure(zone, |xml| apply(xml, &line).map(drop).map_err(NodeError::refused));
        written.map_err(|error| Failed(1, format!("{zone}: {error}")))?;
    }
    Ok(printed)
}

/// Does the commands to a configuration. Returns what they print.
fn apply(zone: &mut Element, line: &str) -> Result<String, String> {
    let (mut scope, mut printed) = (Scope::Global, String::new());
    for command in line.split(';').map(str::trim).filter(|command| !command.is_empty()) {
        let words: Vec<&str> = command.split_whitespace().collect();
        scope = match (scope, words.as_slice()) {
            (Scope::Global, ["info", "autoboot"]) => {
                printed += &format!("autoboot: {}\n", zone.get("autoboot").unwrap_or("false"));
                Scope::Global
            }
            (Scope::Global, ["info", "attr", named]) => {
                printed += &info(zone, value(named, "name")?);
                Scope::Global
            }
            (Scope::Global, ["set", set]) => {
                zone.put("autoboot", value(set, "autoboot")?);
                Scope::Global
            }
            (Scope::Global, ["add", "attr"]) => Scope::Added(None, None),
            (Scope::Global, ["add", "dataset"]) => Scope::Delegated(None),
            (Scope::Delegated(_), ["set", named]) => {
                Scope::Delegated(Some(value(named, "name")?.to_owned()))
            }
            (Scope::Delegated(Some(name)), ["end"]) => {
                let is_there = zone.all("dataset").any(|it| it.get("name") == Some(&name));
                if is_there {
                    return Err("A dataset resource with the name already exists".to_owned());
                }
                zone.children.push(Element::new("dataset", &[("name", &name)]));
                Scope::Global
            }
            (Scope::Delegated(None), ["end"]) => {
                return Err("required property missing".to_owned());
            }
            (Scope::Global, ["remove", "dataset", named]) => {
                let (name, before) = (value(named, "name")?, zone.children.len());
                zone.children.retain(|it| it.name != "dataset" || it.get("name") != Some(name));
                if zone.children.len() == before {
                    return Err("No such dataset resource".to_owned());
                }
                Scope::Global
            }
            (Scope::Global, ["select", "attr", named]) => {
                let name = value(named, "name")?;
                if zone.value("attr", name).is_none() {
                    return Err("No such attr resource".to_owned());
                }
                Scope::Selected(name.to_owned(), None)
            }
            (Scope::Selected(name, _), ["set", set]) => {
                Scope::Selected(name, Some(value(set, "value")?.to_owned()))
            }
            (Scope::Added(name, has), ["set", set]) => match set.split_once('=') {
                Some(("name", name)) => Scope::Added(Some(unquoted(name).to_owned()), has),
                Some(("value", value)) => Scope::Added(name, Some(unquoted(value).to_owned())),
                Some(("type", _)) => Scope::Added(name, has),
                _ => return Err(format!("invalid property: {set}")),
            },
            (Scope::Selected(name, set), ["end"]) => {
                if let Some(value) = set {
                    zone.set_value("attr", &name, Some(&value));
                }
                Scope::Global
            }
            (Scope::Added(Some(name), Some(value)), ["end"]) => {
                if zone.value("attr", &name).is_some() {
                    return Err("An attr resource with the name already exists".to_owned());
                }
                zone.set_value("attr", &name, Some(&value));
                Scope::Global
            }
            (Scope::Added(..), ["end"]) => return Err("required property missing".to_owned()),
            _ => return Err(format!("syntax error at '{command}'")),
        };
    }
    match scope {
        Scope::Global => Ok(printed),
        // The commands end inside a resource: nothing of it is kept.
        _ => Err("a resource is not ended".to_owned()),
    }
}

fn info(zone: &Element, name: &str) -> String {
    match zone.value("attr", name) {
        Some(value) => format!("attr:\n\tname: {name}\n\ttype: string\n\tvalue: {value}\n"),
        None => "No such attr resource.\n".to_owned(),
    }
}

/// The value of `KEY=VALUE`.
fn value<'a>(word: &'a str, key: &str) -> Result<&'a str, String> {
    let found = word.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
    found.map(unquoted).ok_or_else(|| format!("syntax error at '{word}'"))
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Element {
        let mut zone = Element::new("zone", &[("autoboot", "true")]);
        zone.set_value("attr", "create-timestamp", Some("2026-01-01T00:00:00.000Z"));
        zone
    }

    #[test]
    fn an_attribute_is_selected_set_and_ended() {
        let mut zone = zone();
        let set = "select attr name=create-timestamp; set value=2015-01-02T03:04:05.678Z; end";
        assert_eq!(apply(&mut zone, set), Ok(String::new()));
        assert_eq!(zone.value("attr", "create-timestamp"), Some("2015-01-02T03:04:05.678Z"));
        let add = "add attr; set name=do-not-inventory; set type=boolean; set value=true; end";
        assert_eq!(apply(&mut zone, add), Ok(String::new()));
        assert_eq!(zone.value("attr", "do-not-inventory"), Some("true"));
        assert_eq!(
            apply(&mut zone, "set autoboot=false; info autoboot"),
            Ok("autoboot: false\n".into())
        );
        assert_eq!(apply(&mut zone, "info attr name=no"), Ok("No such attr resource.\n".into()));
    }

    #[test]
    fn a_dataset_is_delegated_once_and_removed() {
        let mut zone = zone();
        let add = "add dataset; set name=zones/z/data; end";
        assert_eq!(apply(&mut zone, add), Ok(String::new()));
        assert!(apply(&mut zone, add).unwrap_err().contains("already exists"));
        let remove = "remove dataset name=zones/z/data";
        assert_eq!(apply(&mut zone, remove), Ok(String::new()));
        assert!(apply(&mut zone, remove).is_err());
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for line in [
            "select attr name=no; set value=1; end",
            "select attr name=create-timestamp; set value=1",
            "add attr; set name=create-timestamp; set value=1; end",
            "add attr; set name=x; end",
            "set ip-type=shared",
            "end",
        ] {
            assert!(apply(&mut zone(), line).is_err(), "{line}");
        }
    }
}
