// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The body of an allocation, checked before any node is looked at. Pure.

use serde_json::Value;

use super::refusal::{Kind, Params, Refusal, is_uuid, require};
use crate::restify;

const FIELDS: [(&str, Kind, bool); 6] = [
    ("servers", Kind::Array, false),
    ("image", Kind::Object, true),
    ("package", Kind::Object, false),
    ("vm", Kind::Object, true),
    ("nic_tags", Kind::Array, true),
    ("nic_tag_requirements", Kind::Array, false),
];
const SPREADS: [&str; 4] = ["min-ram", "max-ram", "random", "min-owner"];

/// A field and what is wrong with it.
type Fault = (&'static str, String);

/// Checks the body.
pub(super) fn check(order: &Params) -> Result<(), Refusal> {
    require(order, &FIELDS)?;
    let faults = [tags(order), image(order), package(order), vm(order), sizes(order)];
    let faults: Vec<(String, String)> =
        faults.into_iter().flatten().map(|(field, why)| (field.to_owned(), why)).collect();
    if !faults.is_empty() {
        return Err(Refusal::Parameters(500, faults));
    }
    match order.get("servers").and_then(Value::as_array) {
        Some(servers) if servers.is_empty() => Err(Refusal::storage(
            "(&(|)(&(setup=true)(reserved=false)!(uuid=default))) is an invalid filter",
        )),
        _ => Ok(()),
    }
}

fn tags(order: &Params) -> Option<Fault> {
    let list = |name: &str| order.get(name).and_then(Value::as_array).into_iter().flatten();
    if list("servers").any(|it| !it.as_str().is_some_and(is_uuid)) {
        return Some(("servers", "invalid server UUID".to_owned()));
    }
    if list("nic_tags").any(|it| !it.is_string()) {
        return Some(("nic_tags", "invalid nic_tag".to_owned()));
    }
    for (at, inner) in list("nic_tag_requirements").enumerate() {
        let Some(tags) = inner.as_array() else {
            return Some(("nic_tag_requirements", mistyped(&at.to_string(), inner, "array")));
        };
        if let Some((of, tag)) = tags.iter().enumerate().find(|(_, tag)| !tag.is_string()) {
            let place = format!("{at}[{of}]");
            return Some(("nic_tag_requirements", mistyped(&place, tag, "string")));
        }
    }
    None
}

/// The words of the service's schema checker.
fn mistyped(place: &str, value: &Value, wanted: &str) -> String {
    let (shown, kind) = match value {
        Value::String(text) => (text.clone(), "string"),
        Value::Number(number) => (number.to_string(), "number"),
        other => (other.to_string(), "object"),
    };
    format!("property \"{place}\": {shown} - {kind} value found, but a {wanted} is required")
}

fn part<'a>(order: &'a Params, name: &str) -> Option<&'a Params> {
    order.get(name)?.as_object()
}

fn image(order: &Params) -> Option<Fault> {
    let image = part(order, "image")?;
    let says = |why: &str| Some(("image", why.to_owned()));
    if image.get("image_size").is_some_and(|size| !size.is_number()) {
        return says("\"image.image_size\" has invalid type");
    }
    if let Some(traits) = image.get("traits").filter(|it| !it.is_object()) {
        return Some(("image", mistyped("", traits, "object")));
    }
    let requirements = image.get("requirements").filter(|it| !it.is_null())?;
    let Some(requirements) = requirements.as_object() else {
        return says("\"image.requirements\" has invalid type");
    };
    for name in ["min_platform", "max_platform"] {
        let Some(platforms) = requirements.get(name) else { continue };
        let field = format!("\"requirements.{name}\"");
        let Some(platforms) = platforms.as_object() else {
            return Some(("image", format!("{field} is not a hash")));
        };
        let is_version =
            |text: &str| text.split_once('.').is_some_and(|(a, b)| digits(a) && digits(b));
        if platforms.keys().any(|version| !is_version(version)) {
            return Some(("image", format!("{field} contains an invalid SDC version")));
        }
        let is_date =
            |it: &Value| it.as_str().is_some_and(|it| it.len() == 16 && it.ends_with('Z'));
        if platforms.values().any(|date| !is_date(date)) {
            return Some(("image", format!("{field} contains an invalid platform date")));
        }
    }
    None
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn package(order: &Params) -> Option<Fault> {
    let package = part(order, "package")?;
    for name in ["overprovision_cpu", "overprovision_memory"] {
        if package.get(name).is_some_and(|it| !it.is_number()) {
            return Some(("package", format!("\"package.{name}\" has invalid type")));
        }
    }
    let spread = package.get("alloc_server_spread");
    if spread.is_some_and(|it| !it.as_str().is_some_and(|it| SPREADS.contains(&it))) {
        return Some(("package", "\"alloc_server_spread\" has invalid value".to_owned()));
    }
    if package.get("min_platform").is_some_and(|it| hash(it).is_none()) {
        return Some(("package", "\"package.min_platform\" has invalid type".to_owned()));
    }
    if package.get("traits").is_some_and(|it| hash(it).is_none()) {
        let why = "\"package.traits\": \"package.traits\" has invalid type";
        return Some(("package", why.to_owned()));
    }
    None
}

/// An object, or the JSON text of one.
pub(super) fn hash(value: &Value) -> Option<Params> {
    match value {
        Value::Object(object) => Some(object.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

fn vm(order: &Params) -> Option<Fault> {
    let vm = part(order, "vm")?;
    let says = |why: &str| Some(("vm", why.to_owned()));
    let is_uuid = |name: &str| vm.get(name).and_then(Value::as_str).is_some_and(restify::is_uuid);
    if !is_uuid("owner_uuid") {
        return says("VM \"owner_uuid\" is not a valid UUID");
    }
    if !vm.get("ram").is_some_and(Value::is_number) {
        return says("VM \"ram\" is not a number");
    }
    for name in ["quota", "cpu_cap"] {
        if vm.get(name).is_some_and(|it| !it.is_number() && !restify::falsy(it)) {
            return Some(("vm", format!("VM \"{name}\" is not a number")));
        }
    }
    if let Some(traits) = vm.get("traits").filter(|it| !it.is_object()) {
        return Some(("vm", format!("VM {}", mistyped("", traits, "object"))));
    }
    if let Some(why) = vm.get("affinity").filter(|it| !it.is_null()).and_then(affinity) {
        return Some(("vm", format!("VM \"affinity{why}")));
    }
    if let Some(why) = vm.get("locality").and_then(locality) {
        return Some(("vm", format!("VM \"locality{why}")));
    }
    if !is_uuid("vm_uuid") {
        return says("\"vm.vm_uuid\" is an invalid UUID");
    }
    metadata(vm)
}

/// What placement has against affinity, after the word.
pub fn affinity(affinity: &Value) -> Option<&'static str> {
    let Some(rules) = affinity.as_array() else { return Some("\" is not an array") };
    for rule in rules {
        if !rule["key"].is_string() {
            return Some(".key\" is not a string");
        }
        match rule["operator"].as_str() {
            None => return Some(".operator\" is not a string"),
            Some("==" | "!=") => {}
            Some(_) => return Some(".operator\" has invalid operator"),
        }
        if !rule["value"].is_string() {
            return Some(".value\" is not a string");
        }
        if !matches!(rule["valueType"].as_str(), Some("exact" | "glob" | "re")) {
            return Some(".valueType\" has invalid value");
        }
        if !rule["isSoft"].is_boolean() {
            return Some(".isSoft\" is not a boolean");
        }
    }
    None
}

fn locality(locality: &Value) -> Option<String> {
    let Some(hints) = locality.as_object() else { return Some("\" is has wrong type".to_owned()) };
    let is_uuid = |it: &Value| it.as_str().is_some_and(restify::is_uuid);
    for name in ["near", "far"] {
        match hints.get(name) {
            None => {}
            Some(one @ Value::String(_)) if is_uuid(one) => {}
            Some(Value::String(_)) => return Some(format!(".{name}\" is not a UUID")),
            Some(Value::Array(all)) if all.iter().all(is_uuid) => {}
            Some(Value::Array(_)) => {
                return Some(format!(".{name}\" contains an malformed UUID"));
            }
            Some(_) => return Some(format!(".{name}\" is neither string nor array")),
        }
    }
    let is_bad = hints.get("strict").is_some_and(|it| !it.is_boolean());
    is_bad.then(|| ".strict\" is given, but not boolean".to_owned())
}

fn metadata(vm: &Params) -> Option<Fault> {
    let metadata = vm.get("internal_metadata").filter(|it| !it.is_null())?;
    if !metadata.is_object() && !metadata.is_array() {
        return Some(("vm", "\"vm.internal_metadata\" is not a hash".to_owned()));
    }
    let volumes = metadata.get("docker:volumesfrom")?.as_str()?;
    let field = "\"vm.internal_metadata['docker:volumesfrom']\"";
    match serde_json::from_str::<Value>(volumes) {
        Ok(Value::Array(_)) => None,
        Ok(_) => Some(("vm", format!("{field} does not contain an array"))),
        Err(_) => Some(("vm", format!("{field} is not valid JSON"))),
    }
}

fn sizes(order: &Params) -> Option<Fault> {
    let ram = part(order, "vm")?.get("ram")?.as_f64()?;
    let requirements = part(order, "image")?.get("requirements")?;
    let says = |why: &str| Some(("vm", format!("\"vm.ram\" is {why}")));
    if requirements["min_ram"].as_f64().is_some_and(|least| ram < least) {
        return says("smaller than \"image.requirements.min_ram\"");
    }
    if requirements["max_ram"].as_f64().is_some_and(|most| ram > most) {
        return says("larger than \"image.requirements.max_ram\"");
    }
    None
}
