// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VM payloads as `vmadm create` and `vmadm update` take them, and the place of each key in the zone
//! configuration. No I/O.

use base64::Engine;
use serde_json::{Map, Value};

use crate::error::NodeError;
use crate::xml::Element;

/// How a value is written into an attribute.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Text,
    Number,
    Bool,
    Base64,
    List,
}

/// Payload keys that live in an `attr` whose name is not just the key with dashes.
const ATTRS: [(&str, &str, Form); 48] = [
    ("v", "vm-version", Form::Number),
    ("create_timestamp", "create-timestamp", Form::Text),
    ("billing_id", "billing-id", Form::Text),
    ("owner_uuid", "owner-uuid", Form::Text),
    ("package_name", "package-name", Form::Text),
    ("package_version", "package-version", Form::Text),
    ("alias", "alias", Form::Base64),
    ("hostname", "hostname", Form::Text),
    ("dns_domain", "dns-domain", Form::Text),
    ("resolvers", "resolvers", Form::List),
    ("firewall_enabled", "firewall-enabled", Form::Bool),
    ("image_uuid", "dataset-uuid", Form::Text),
    ("tmpfs", "tmpfs", Form::Number),
    ("ram", "ram", Form::Number),
    ("vcpus", "vcpus", Form::Number),
    ("vnc_port", "vnc-port", Form::Number),
    ("disk_driver", "disk-driver", Form::Text),
    ("nic_driver", "nic-driver", Form::Text),
    ("cpu_type", "cpu-type", Form::Text),
    ("bootrom", "bootrom", Form::Text),
    ("com1", "com1", Form::Text),
    ("com2", "com2", Form::Text),
    ("boot", "boot", Form::Text),
    ("vga", "vga", Form::Text),
    ("qemu_opts", "qemu-opts", Form::Base64),
    ("qemu_extra_opts", "qemu-extra-opts", Form::Base64),
    ("vnc_password", "vnc-password", Form::Base64),
    ("bhyve_extra_opts", "bhyve-extra-opts", Form::Text),
    ("flexible_disk_size", "flexible-disk-size", Form::Number),
    ("kernel_version", "kernel-version", Form::Text),
    ("docker", "docker", Form::Bool),
    ("init_name", "init-name", Form::Text),
    ("restart_init", "restart-init", Form::Bool),
    ("internal_metadata_namespaces", "internal-metadata-namespaces", Form::List),
    ("maintain_resolvers", "maintain-resolvers", Form::Bool),
    ("do_not_inventory", "do-not-inventory", Form::Bool),
    ("archive_on_delete", "archive-on-delete", Form::Bool),
    ("app_svc_dependent", "app-svc-dependent", Form::Bool),
    ("default_gateway", "default-gateway", Form::Text),
    ("provisioning", "provisioning", Form::Bool),
    ("failed", "failed", Form::Text),
    ("transition", "transition", Form::Text),
    ("zlog_name", "zlog-name", Form::Text),
    ("zlog_mode", "zlog-mode", Form::Text),
    ("zlog_max_size", "zlog-max-size", Form::Number),
    ("spice_port", "spice-port", Form::Number),
    ("virtio_txburst", "virtio-txburst", Form::Number),
    ("virtio_txtimer", "virtio-txtimer", Form::Number),
];

/// Payload keys that live in a resource control: control, action, unit.
const RCTLS: [(&str, &str, &str, u64); 11] = [
    ("cpu_shares", "zone.cpu-shares", "none", 1),
    ("zfs_io_priority", "zone.zfs-io-priority", "none", 1),
    ("max_lwps", "zone.max-lwps", "deny", 1),
    ("max_msg_ids", "zone.max-msg-ids", "deny", 1),
    ("max_sem_ids", "zone.max-sem-ids", "deny", 1),
    ("max_shm_ids", "zone.max-shm-ids", "deny", 1),
    ("max_shm_memory", "zone.max-shm-memory", "deny", MIB),
    ("max_physical_memory", "zone.max-physical-memory", "deny", MIB),
    ("max_locked_memory", "zone.max-locked-memory", "deny", MIB),
    ("max_swap", "zone.max-swap", "deny", MIB),
    ("cpu_cap", "zone.cpu-cap", "deny", 1),
];

const MIB: u64 = 1 << 20;

/// Keys of a NIC that are stored in a `net-attr`.
const NIC_ATTRS: [(&str, Form); 20] = [
    ("ip", Form::Text),
    ("ips", Form::List),
    ("netmask", Form::Text),
    ("gateway", Form::Text),
    ("gateways", Form::List),
    ("network_uuid", Form::Text),
    ("model", Form::Text),
    ("primary", Form::Bool),
    ("mtu", Form::Number),
    ("dhcp_server", Form::Bool),
    ("allowed_ips", Form::List),
    ("allow_dhcp_spoofing", Form::Bool),
    ("allow_ip_spoofing", Form::Bool),
    ("allow_mac_spoofing", Form::Bool),
    ("allow_restricted_traffic", Form::Bool),
    ("allow_unfiltered_promisc", Form::Bool),
    ("blocked_outgoing_ports", Form::List),
    ("vrrp_vrid", Form::Number),
    ("vrrp_primary_ip", Form::Text),
    ("allowed_dhcp_cids", Form::List),
];

/// A VM's payload.
pub type Payload = Map<String, Value>;

/// The brands that vmadm creates.
pub const BRANDS: [&str; 6] = ["joyent", "joyent-minimal", "lx", "kvm", "bhyve", "builder"];

/// A text value of the payload.
pub fn text<'a>(payload: &'a Payload, key: &str) -> Option<&'a str> {
    payload.get(key).and_then(Value::as_str)
}

/// Bytes as zfs takes them: `10737418240`, `10g`, `512M`.
pub fn bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match digits.char_indices().next_back()? {
        (at, 'k') => (digits.get(..at)?, 10),
        (at, 'm') => (digits.get(..at)?, 20),
        (at, 'g') => (digits.get(..at)?, 30),
        (at, 't') => (digits.get(..at)?, 40),
        _ => (digits, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Returns true if VMs of this brand run their own kernel.
pub fn is_hvm(brand: &str) -> bool {
    matches!(brand, "kvm" | "bhyve")
}

fn formed(key: &str, value: &Value, form: Form) -> Result<String, NodeError> {
    let wrong = |what: &str| NodeError::invalid(key, format!("expected {what}, got {value}"));
    match form {
        Form::Text => value.as_str().map(str::to_string).ok_or_else(|| wrong("a string")),
        Form::Base64 => {
            let text = value.as_str().ok_or_else(|| wrong("a string"))?;
            Ok(base64::engine::general_purpose::STANDARD.encode(text))
        }
        Form::Number => match value {
            Value::Number(n) => Ok(n.to_string()),
            Value::String(s) if s.parse::<i64>().is_ok() => Ok(s.clone()),
            _ => Err(wrong("a number")),
        },
        Form::Bool => match value {
            Value::Bool(b) => Ok(b.to_string()),
            Value::String(s) if s == "true" || s == "false" => Ok(s.clone()),
            _ => Err(wrong("true or false")),
        },
        Form::List => {
            let items = value.as_array().ok_or_else(|| wrong("an array"))?;
            let texts: Option<Vec<String>> = items
                .iter()
                .map(|v| match v {
                    Value::String(s) => Some(s.clone()),
                    Value::Number(n) => Some(n.to_string()),
                    _ => None,
                })
                .collect();
            Ok(texts.ok_or_else(|| wrong("an array of strings"))?.join(","))
        }
    }
}

/// Stores one payload key in the configuration; `null` and an empty list remove it. Returns false if the key is
/// not stored there.
pub fn apply(zone: &mut Element, key: &str, value: &Value) -> Result<bool, NodeError> {
    if let Some((_, name, form)) = ATTRS.iter().find(|(k, _, _)| *k == key) {
        let is_list = *form == Form::List;
        let is_empty = value.is_null() || is_list && value.as_array().is_some_and(Vec::is_empty);
        let text = if is_empty { None } else { Some(formed(key, value, *form)?) };
        zone.set_value("attr", name, text.as_deref());
        return Ok(true);
    }
    if let Some((_, name, action, unit)) = RCTLS.iter().find(|(k, _, _, _)| *k == key) {
        zone.children.retain(|c| !(c.name == "rctl" && c.get("name") == Some(name)));
        if !value.is_null() {
            let limit = formed(key, value, Form::Number)?;
            let limit = limit.parse::<u64>().ok().and_then(|n| n.checked_mul(*unit));
            let limit = limit.ok_or_else(|| {
                NodeError::invalid(key, format!("expected a whole number, got {value}"))
            })?;
            let mut rctl = Element::new("rctl", &[("name", name)]);
            let limit = limit.to_string();
            let attrs = [("priv", "privileged"), ("limit", limit.as_str()), ("action", *action)];
            rctl.children.push(Element::new("rctl-value", &attrs));
            let at = zone.children.iter().rposition(|c| matches!(c.name.as_str(), "rctl" | "attr"));
            zone.children.insert(at.map_or(0, |n| n + 1), rctl);
        }
        return Ok(true);
    }
    match key {
        "autoboot" => {
            let value = formed(key, value, Form::Bool)?;
            match zone.get("brand") == Some("kvm") {
                true => zone.set_value("attr", "vm-autoboot", Some(&value)),
                false => zone.put("autoboot", &value),
            }
        }
        "limit_priv" => match value {
            Value::Array(_) => zone.put("limitpriv", &formed(key, value, Form::List)?),
            _ => zone.put("limitpriv", &formed(key, value, Form::Text)?),
        },
        "fs_allowed" => zone.put("fs-allowed", &formed(key, value, Form::Text)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns a limit of a zone's, such as `max_swap`, in the unit of payloads.
pub fn limit(zone: &Element, key: &str) -> Option<u64> {
    let (_, name, _, unit) = RCTLS.iter().find(|(k, _, _, _)| *k == key)?;
    let rctl = zone.all("rctl").find(|rctl| rctl.get("name") == Some(name))?;
    let value: u64 = rctl.children.first()?.get("limit")?.parse().ok()?;
    Some(value / unit)
}

/// The whole configuration of a new VM. `place` names zonepath and debug id.
pub fn zone_xml(payload: &Payload, zonepath: &str, zonedid: i64) -> Result<Element, NodeError> {
    let need = |key: &str| text(payload, key).ok_or_else(|| NodeError::invalid(key, "is required"));
    let (uuid, brand) = (need("uuid")?, need("brand")?);
    let privileges = match is_hvm(brand) {
        true => "default,-file_link_any,-net_access,-proc_fork,-proc_info,-proc_session",
        false => "default",
    };
    let id = zonedid.to_string();
    let attrs = [
        ("name", uuid),
        ("zonepath", zonepath),
        ("autoboot", "false"),
        ("brand", brand),
        ("ip-type", "exclusive"),
        ("limitpriv", privileges),
        ("debugid", id.as_str()),
    ];
    let mut zone = Element::new("zone", &attrs);
    for (key, _, _) in ATTRS {
        if let Some(value) = payload.get(key).filter(|_| key != "image_uuid" || !is_hvm(brand)) {
            apply(&mut zone, key, value)?;
        }
    }
    let rctls = RCTLS.iter().map(|(key, ..)| *key);
    for key in rctls.chain(["autoboot", "limit_priv", "fs_allowed"]) {
        if let Some(value) = payload.get(key) {
            apply(&mut zone, key, value)?;
        }
    }
    if payload.get("delegate_dataset").and_then(Value::as_bool) == Some(true) {
        let name = format!("{}/data", zonepath.trim_start_matches('/'));
        zone.children.push(Element::new("dataset", &[("name", &name)]));
    }
    for fs in list(payload, "filesystems")? {
        let get = |key: &str| text(fs, key).unwrap_or_default();
        let attrs =
            [("special", get("source")), ("directory", get("target")), ("type", get("type"))];
        let mut element = Element::new("filesystem", &attrs);
        for option in fs.get("options").and_then(Value::as_array).into_iter().flatten() {
            element
                .children
                .push(Element::new("fsoption", &[("name", option.as_str().unwrap_or_default())]));
        }
        zone.children.push(element);
    }
    for (n, disk) in list(payload, "disks")?.into_iter().enumerate() {
        zone.children.push(device(disk, n, brand, uuid)?);
    }
    for (n, nic) in list(payload, "nics")?.into_iter().enumerate() {
        zone.children.push(network(nic, n, brand)?);
    }
    Ok(zone)
}

/// A list of objects in the payload.
pub fn list<'a>(payload: &'a Payload, key: &str) -> Result<Vec<&'a Payload>, NodeError> {
    let wrong = || NodeError::invalid(key, "expected an array of objects");
    match payload.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|i| i.as_object().ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// The dataset of disk `n`.
pub fn disk_dataset(brand: &str, uuid: &str, n: usize) -> String {
    match brand {
        "kvm" => format!("zones/{uuid}-disk{n}"),
        _ => format!("zones/{uuid}/disk{n}"),
    }
}

fn device(disk: &Payload, n: usize, brand: &str, uuid: &str) -> Result<Element, NodeError> {
    let path = match text(disk, "path") {
        Some(path) => path.to_string(),
        None => format!("/dev/zvol/rdsk/{}", disk_dataset(brand, uuid, n)),
    };
    let mut device = Element::new("device", &[("match", &path)]);
    let boot = disk.get("boot").and_then(Value::as_bool).unwrap_or(n == 0).to_string();
    device.set_value("net-attr", "boot", Some(&boot));
    device.set_value("net-attr", "model", Some(text(disk, "model").unwrap_or("virtio")));
    device.set_value("net-attr", "media", Some(text(disk, "media").unwrap_or("disk")));
    for (key, name) in [
        ("size", "size"),
        ("uuid", "uuid"),
        ("image_uuid", "image-uuid"),
        ("image_size", "image-size"),
        ("image_name", "image-name"),
        ("pci_slot", "pci-slot"),
        ("guest_block_size", "guest-block-size"),
        ("notrim", "notrim"),
    ] {
        let value = match disk.get(key) {
            Some(Value::String(s)) => s.clone(),
            Some(Value::Number(n)) => n.to_string(),
            Some(Value::Bool(b)) => b.to_string(),
            _ => continue,
        };
        device.set_value("net-attr", name, Some(&value));
    }
    Ok(device)
}

/// The configuration of a NIC; `n` names its interface if it has no name.
pub fn network(nic: &Payload, n: usize, brand: &str) -> Result<Element, NodeError> {
    let default = format!("{}{n}", if brand == "lx" { "eth" } else { "net" });
    let physical = text(nic, "interface").unwrap_or(&default);
    let mac = text(nic, "mac").ok_or_else(|| NodeError::invalid("mac", "a NIC needs one"))?;
    let mac: sdc_clients::MacAddr =
        mac.parse().map_err(|_| NodeError::invalid("mac", format!("'{mac}' is no MAC address")))?;
    let mut element =
        Element::new("network", &[("physical", physical), ("mac-addr", &mac.to_string())]);
    if let Some(vlan) = nic.get("vlan_id").and_then(Value::as_u64).filter(|v| *v != 0) {
        element.put("vlan-id", &vlan.to_string());
    }
    element.put("global-nic", text(nic, "nic_tag").unwrap_or("admin"));
    update_network(&mut element, nic)?;
    if is_hvm(brand) && element.value("net-attr", "model").is_none() {
        element.set_value("net-attr", "model", Some("virtio"));
    }
    Ok(element)
}

/// Returns true if a NIC's key is stored in a `net-attr`.
pub fn is_nic_attr(key: &str) -> bool {
    NIC_ATTRS.iter().any(|(k, _)| *k == key)
}

/// Changes those properties of a NIC that are given; `null` removes one.
pub fn update_network(element: &mut Element, nic: &Payload) -> Result<(), NodeError> {
    for (key, form) in NIC_ATTRS {
        match nic.get(key) {
            None => {}
            Some(Value::Null) => element.set_value("net-attr", key, None),
            Some(value) => element.set_value("net-attr", key, Some(&formed(key, value, form)?)),
        }
    }
    Ok(())
}

/// The alias that a configuration holds.
pub fn alias(zone: &Element) -> Option<String> {
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(zone.value("attr", "alias")?).ok()?;
    String::from_utf8(bytes).ok()
}
