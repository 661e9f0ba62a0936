// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration of disks, PCI devices and file systems.

use serde_json::{Value, json};

use crate::payload::{self, Payload};
use crate::vmadm::forms;
use crate::xml::Element;

/// The fields of a disk that are stored, by the names that they have there.
const DISK_ATTRS: [(&str, &str); 8] = [
    ("size", "size"),
    ("image_size", "image-size"),
    ("image_uuid", "image-uuid"),
    ("image_name", "image-name"),
    ("pci_slot", "pci-slot"),
    ("uuid", "uuid"),
    ("notrim", "notrim"),
    ("guest_block_size", "guest-block-size"),
];

/// What a path that is absent is configured as.
const UNDEFINED: &str = "undefined";

/// The configuration of a disk.
pub(super) fn disk(disk: &Payload) -> Element {
    let mut device =
        Element::new("device", &[("match", payload::text(disk, "path").unwrap_or(UNDEFINED))]);
    let boot = disk.get("boot").is_some_and(forms::is_true).to_string();
    device.set_value("net-attr", "boot", Some(&boot));
    for key in ["model", "media"] {
        device.set_value("net-attr", key, payload::text(disk, key));
    }
    let of_image = disk.contains_key("image_uuid");
    for (key, name) in DISK_ATTRS {
        // The image says how large its disk is.
        let is_hidden = key == "size" && of_image || key == "image_size" && !of_image;
        let text = disk.get(key).filter(|value| !is_hidden && !value.is_null()).map(forms::printed);
        let text = text.filter(|text| key != "notrim" || text == "true");
        device.set_value("net-attr", name, text.as_deref());
    }
    device
}

/// The disk of a configuration; nothing if it is another device.
pub(super) fn read(device: &Element) -> Option<Payload> {
    let value = |key: &str| device.value("net-attr", key);
    if device.name != "device"
        || value("model") == Some("passthru")
        || value("boot").or(value("media")).is_none()
    {
        return None;
    }
    let mut disk = Payload::new();
    disk.insert("path".to_string(), json!(device.get("match")));
    disk.insert("boot".to_string(), json!(value("boot") == Some("true")));
    for key in ["model", "media"] {
        disk.extend(value(key).map(|text| (key.to_string(), json!(text))));
    }
    for (key, name) in DISK_ATTRS {
        let read = |text: &str| match key {
            "size" | "image_size" => text.parse::<u64>().map_or_else(|_| json!(text), |n| json!(n)),
            "notrim" => json!(text == "true"),
            _ => json!(text),
        };
        disk.extend(value(name).map(|text| (key.to_string(), read(text))));
    }
    Some(disk)
}

/// A disk with changes of it. How large it is, zfs knows.
pub(super) fn changed(old: &Payload, change: &Payload) -> Payload {
    let mut disk = old.clone();
    disk.extend(
        change.iter().filter(|(key, _)| *key != "size").map(|(k, v)| (k.clone(), v.clone())),
    );
    disk
}

/// The configuration of a PCI device.
pub(super) fn pci_device(device: &Payload) -> Element {
    let mut element =
        Element::new("device", &[("match", payload::text(device, "path").unwrap_or(UNDEFINED))]);
    element.set_value("net-attr", "model", Some("passthru"));
    element.set_value("net-attr", "pci-slot", payload::text(device, "pci_slot"));
    element
}

/// The configuration of a file system.
pub(super) fn filesystem(fs: &Payload) -> Element {
    let get = |key: &str| payload::text(fs, key).unwrap_or(UNDEFINED);
    let attrs = [("special", get("source")), ("directory", get("target")), ("type", get("type"))];
    let mut element = Element::new("filesystem", &attrs);
    if let Some(raw) = payload::text(fs, "raw").filter(|raw| !raw.is_empty()) {
        element.put("raw", raw);
    }
    for option in fs.get("options").and_then(Value::as_array).into_iter().flatten() {
        element.children.push(Element::new("fsoption", &[("name", &forms::printed(option))]));
    }
    element
}

/// The file system of a configuration.
pub(super) fn read_filesystem(element: &Element) -> Payload {
    let mut fs = Payload::new();
    for (key, name) in
        [("source", "special"), ("target", "directory"), ("type", "type"), ("raw", "raw")]
    {
        fs.extend(element.get(name).map(|text| (key.to_string(), json!(text))));
    }
    let options: Vec<&str> =
        element.all("fsoption").filter_map(|option| option.get("name")).collect();
    if !options.is_empty() {
        fs.insert("options".to_string(), json!(options));
    }
    fs
}
