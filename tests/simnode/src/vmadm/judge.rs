// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The first pass: the three lists of `vmadm validate`, which create and update refuse or drop by.

use serde_json::{Value, json};

use super::forms::objects_mut;
use super::images;
use super::kinds::Kind;
use super::slots;
use super::surroundings::Surroundings;
use super::table::{self, Action, Property};
use crate::payload::{self, BRANDS, Payload};
use crate::refusal::Refusal;

/// The exit status of an uncaught exception.
const DIES: u8 = 8;

/// What the first pass comes to. The order is that of the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Values of a wrong kind.
    pub bad_values: Vec<String>,
    /// Properties that the brand or the action does not take.
    pub bad_properties: Vec<String>,
    /// Properties that are not there and have to be.
    pub missing_properties: Vec<String>,
}

/// What `vmadm validate` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The brand is none.
    BadBrand(String),
    /// The lists, of which all may be empty.
    Lists(Verdict),
}

impl Answer {
    /// As it is printed on standard error, and the exit status.
    fn printed(&self, word: &str, brand: &str) -> (String, u8) {
        let answer = match self {
            Answer::BadBrand(brand) => json!({ "bad_brand": brand }),
            Answer::Lists(lists) if *lists == Verdict::default() => {
                return (format!("VALID '{word}' payload for {brand} brand VMs.\n"), 0);
            }
            Answer::Lists(lists) => json!({
                "bad_values": lists.bad_values,
                "bad_properties": lists.bad_properties,
                "missing_properties": lists.missing_properties,
            }),
        };
        (serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n", 1)
    }
}

/// `vmadm validate WORD [BRAND]`: what it prints on standard error, and the exit status. Only an update has its
/// brand from the arguments.
pub fn command(
    word: &str,
    brand: Option<&str>,
    payload: &Payload,
    around: &Surroundings,
) -> (String, u8) {
    let action = Action::of(word);
    let brand = if action == Action::Update { brand } else { payload::text(payload, "brand") };
    match validate(action, payload, brand, around) {
        Ok(answer) => answer.printed(word, brand.unwrap_or_default()),
        Err(_) => ("uncaught exception".to_string(), DIES),
    }
}

/// What `vmadm validate` finds.
pub fn validate(
    action: Action,
    payload: &Payload,
    brand: Option<&str>,
    around: &Surroundings,
) -> Result<Answer, Refusal> {
    match brand {
        Some(brand) if BRANDS.contains(&brand) => {
            judge(action, brand, &mut payload.clone(), around).map(Answer::Lists)
        }
        other => Ok(Answer::BadBrand(other.unwrap_or("undefined").to_string())),
    }
}

impl Verdict {
    fn bad_value(&mut self, name: &str) {
        if !self.bad_values.iter().any(|known| known == name) {
            self.bad_values.push(name.to_string());
        }
    }

    fn bad_property(&mut self, name: &str) {
        if !self.bad_properties.iter().any(|known| known == name) {
            self.bad_properties.push(name.to_string());
        }
    }

    fn one(
        &mut self,
        name: &str,
        value: &Value,
        found: Option<&Property>,
        by: (Action, &str),
        pools: &[String],
    ) {
        let Some(property) = found else { return self.bad_property(name) };
        if !property.kind.takes(value, pools) {
            match property.kind {
                // Said once for each.
                Kind::Integer(..) => self.bad_values.push(name.to_string()),
                _ => self.bad_value(name),
            }
        }
        if !property.is_taken(by.0, by.1) {
            self.bad_property(name);
        }
    }

    /// Refuses what create and update refuse; what they drop is left in the lists.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match (self.bad_values.as_slice(), self.missing_properties.as_slice()) {
            ([], []) => Ok(()),
            ([], missing) => Err(Refusal::Missing(missing.to_vec())),
            (bad, _) => Err(Refusal::Values(bad.to_vec())),
        }
    }
}

/// Judges a payload, and fills in what its images say.
pub(crate) fn judge(
    action: Action,
    brand: &str,
    vm: &mut Payload,
    around: &Surroundings,
) -> Result<Verdict, Refusal> {
    let mut verdict = Verdict::default();
    for (name, value) in &*vm {
        verdict.one(name, value, table::property(name), (action, brand), &around.pools);
        let Some((of, fields, by)) = table::fields(name, action) else { continue };
        match value {
            Value::Array(all) => {
                for (field, value) in all.iter().filter_map(Value::as_object).flatten() {
                    let found = fields.iter().find(|known| known.name == field);
                    verdict.one(
                        &format!("{of}.*.{field}"),
                        value,
                        found,
                        (by, brand),
                        &around.pools,
                    );
                }
            }
            _ if matches!(
                table::property(name).map(|p| p.kind),
                Some(Kind::Objects { strict: true })
            ) =>
            {
                return Err(Refusal::Dies("a list of disks is none"));
            }
            _ => {}
        }
    }
    if let Some(image) = vm.get("image_uuid")
        && !images::has_image(around, brand, image)
    {
        verdict.bad_value("image_uuid");
    }
    let is_hvm = payload::is_hvm(brand);
    if matches!(action, Action::Create | Action::Receive) && !is_hvm {
        let needed = ["image_uuid", "kernel_version"];
        let needed = needed.iter().take(if brand == "lx" { 2 } else { 1 });
        let missing =
            needed.filter(|name| !vm.contains_key(**name)).map(|name| (*name).to_string());
        verdict.missing_properties.extend(missing);
    }
    if is_hvm {
        let list = if action == Action::Update { "add_disks" } else { "disks" };
        let of_images = images::of_disks(vm, list, around);
        disks(vm, list, &mut verdict);
        if brand == "bhyve" {
            ["pci_devices", "add_pci_devices"]
                .iter()
                .for_each(|list| pci_devices(vm, list, &mut verdict));
        }
        of_images.iter().for_each(|name| verdict.bad_value(name));
    }
    Ok(verdict)
}

/// What one disk has beside what it must not have beside it.
fn disks(vm: &Payload, list: &str, verdict: &mut Verdict) {
    let is_flexible = vm.contains_key("flexible_disk_size");
    let none = Payload::new();
    for (n, disk) in vm.get(list).and_then(Value::as_array).into_iter().flatten().enumerate() {
        let disk = disk.as_object().unwrap_or(&none);
        let name = |field: &str| format!("{list}.{n}.{field}");
        let has = |field: &str| disk.contains_key(field);
        if disk.get("refreservation").and_then(Value::as_f64).is_some_and(|n| n < 0.0) {
            verdict.bad_value(&name("refreservation"));
        }
        if disk.get("media").is_some_and(|media| media != "disk") {
            continue;
        }
        if !has("image_uuid") {
            ["image_size", "image_name"]
                .iter()
                .filter(|f| has(f))
                .for_each(|f| verdict.bad_property(&name(f)));
            if !has("size") {
                verdict.missing_properties.push(name("size"));
            }
            continue;
        }
        let size = Some("size").filter(|_| !is_flexible);
        size.into_iter()
            .chain(["block_size"])
            .filter(|f| has(f))
            .for_each(|f| verdict.bad_property(&name(f)));
        if !has("image_size") {
            verdict.missing_properties.push(name("image_size"));
        }
    }
}

fn pci_devices(vm: &Payload, list: &str, verdict: &mut Verdict) {
    let none = Payload::new();
    let devices: Vec<&Payload> = match vm.get(list) {
        Some(Value::Array(all)) => {
            all.iter().map(|device| device.as_object().unwrap_or(&none)).collect()
        }
        // vmadm goes through the characters of a text.
        Some(Value::String(text)) => text.chars().map(|_| &none).collect(),
        _ => Vec::new(),
    };
    for (n, device) in devices.into_iter().enumerate() {
        let is_path = |text: &str| text.starts_with("/devices/");
        let is_slot = |text: &str| slots::Slot::parse(text).is_some();
        for (field, is_good) in
            [("path", &is_path as &dyn Fn(&str) -> bool), ("pci_slot", &is_slot)]
        {
            match device.get(field) {
                None => verdict.missing_properties.push(format!("{list}.{n}.{field}")),
                Some(value) if value.as_str().is_some_and(is_good) => {}
                Some(_) => verdict.bad_value(&format!("{list}.{n}.{field}")),
            }
        }
    }
}

/// Removes what the brand or the action does not take.
pub(crate) fn drop_untaken(action: Action, brand: &str, vm: &mut Payload) {
    vm.retain(|name, _| {
        table::property(name).is_some_and(|property| property.is_taken(action, brand))
    });
    let lists: Vec<String> =
        vm.keys().filter(|name| table::fields(name, action).is_some()).cloned().collect();
    for list in lists {
        let Some((_, fields, by)) = table::fields(&list, action) else { continue };
        for object in objects_mut(vm, &list) {
            object.retain(|field, _| {
                fields.iter().any(|known| known.name == field && known.is_taken(by, brand))
            });
        }
    }
}
