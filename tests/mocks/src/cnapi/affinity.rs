// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Affinity and locality: beside which VMs, and away from which, a VM is placed. Pure.

use serde_json::{Value, json};

use super::left::Left;
use super::refusal::{Params, Refusal, word};
use crate::faults::glob;

/// VMs beside which, and away from which.
#[derive(Clone, Debug, Default)]
pub(super) struct Hints {
    near: Vec<String>,
    far: Vec<String>,
}

/// What has to be, and what is wished.
#[derive(Clone, Debug, Default)]
pub(super) struct Locality {
    pub(super) hard: Hints,
    pub(super) soft: Hints,
}

impl Locality {
    /// What a VM's `locality` asks for.
    pub(super) fn of(vm: &Params) -> Locality {
        let Some(locality) = vm.get("locality") else { return Locality::default() };
        let list = |name: &str| match &locality[name] {
            Value::String(one) => vec![one.clone()],
            many => {
                let many = many.as_array().into_iter().flatten();
                many.filter_map(Value::as_str).map(str::to_owned).collect()
            }
        };
        let hints = Hints { near: list("near"), far: list("far") };
        match locality["strict"] == true {
            true => Locality { hard: hints, soft: Hints::default() },
            false => Locality { hard: Hints::default(), soft: hints },
        }
    }
}

impl Hints {
    /// Returns true if anything is asked for.
    pub(super) fn is_any(&self) -> bool {
        !self.near.is_empty() || !self.far.is_empty()
    }

    /// Returns which nodes stay, and the reasons. VMs of other owners count for nothing.
    pub(super) fn judged(&self, left: &[Left<'_>], mark: &str, owner: &str) -> (Vec<bool>, Params) {
        let has = |node: &Left<'_>, vms: &[String]| {
            let mut own = node.vms.iter().filter(|vm| word(vm, "owner_uuid") == owner);
            own.any(|vm| vms.iter().any(|uuid| uuid == word(vm, "uuid")))
        };
        let mut reasons = Params::new();
        let mut keep = vec![true; left.len()];
        for (node, keep) in left.iter().zip(&mut keep) {
            if has(node, &self.far) {
                let why = format!("exclude: inst!={}", self.far.join(","));
                reasons.insert(node.uuid().to_owned(), json!(why));
                *keep = false;
            }
        }
        if self.near.is_empty() {
            return (keep, reasons);
        }
        let near = self.near.join(",");
        let is_beside: Vec<bool> = left.iter().map(|node| has(node, &self.near)).collect();
        if !is_beside.contains(&true) {
            reasons.insert("*".to_owned(), json!(format!("exclude: inst=={mark}{near}")));
        }
        for ((node, keep), is_beside) in left.iter().zip(&mut keep).zip(is_beside) {
            if is_beside && *keep {
                let why = format!("include: inst=={mark}{near}");
                reasons.insert(node.uuid().to_owned(), json!(why));
            }
            *keep &= is_beside;
        }
        (keep, reasons)
    }
}

/// Turns affinity into the VMs that it means; nothing where there is none. The inner error is that of a rule that
/// has to hold and means no VM.
pub(super) fn converted(
    vm: &Params,
    vms: &[Params],
) -> Result<Result<Option<Locality>, String>, Refusal> {
    let rules = match vm.get("affinity") {
        None => return Ok(Ok(None)),
        Some(Value::Array(rules)) if rules.is_empty() => return Ok(Ok(None)),
        Some(Value::Array(rules)) => rules,
        Some(_) => return Err(Refusal::Dies),
    };
    let owner = word(vm, "owner_uuid");
    let mut locality = Locality::default();
    for rule in rules {
        let text = |name: &str| rule[name].as_str().unwrap_or_default();
        let (key, operator, value) = (text("key"), text("operator"), text("value"));
        let is_soft = rule["isSoft"] == true;
        let is_meant = |vm: &&Params| {
            word(vm, "owner_uuid") == owner && is_match(vm, key, value, text("valueType"))
        };
        let mut uuids: Vec<String> =
            vms.iter().filter(is_meant).map(|vm| word(vm, "uuid").to_owned()).collect();
        if uuids.is_empty() && operator == "==" && !is_soft {
            let what = match is_instance(key) {
                true => format!("{value:?}"),
                false => format!("tag \"{key}={value}\""),
            };
            let rule = format!("{key}{operator}{value}");
            let why = format!("no active containers found matching {what} for affinity \"{rule}\"");
            return Ok(Err(why));
        }
        let hints = if is_soft { &mut locality.soft } else { &mut locality.hard };
        let list = if operator == "==" { &mut hints.near } else { &mut hints.far };
        list.append(&mut uuids);
    }
    Ok(Ok(Some(locality)))
}

fn is_instance(key: &str) -> bool {
    matches!(key, "instance" | "container")
}

/// An expression (`re`) means no VM here.
fn is_match(vm: &Params, key: &str, value: &str, kind: &str) -> bool {
    let matches = |text: &str| match kind {
        "exact" => text == value,
        "glob" => glob(value, text),
        _ => false,
    };
    match is_instance(key) {
        true => matches(word(vm, "alias")) || matches(word(vm, "uuid")),
        false => vm.get("tags").and_then(|tags| tags[key].as_str()).is_some_and(matches),
    }
}
