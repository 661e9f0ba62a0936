// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where each property is in a configuration: an attribute, a resource control, or a name of its own.

use base64::Engine;
use serde_json::Value;

use crate::error::NodeError;
use crate::payload;
use crate::vmadm::forms;
use crate::xml::Element;

/// How a value is written into an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Text,
    Number,
    Bool,
    /// True is stored, false is absence.
    Flag,
    Base64,
    List,
}

/// Payload keys that live in an `attr` whose name is not just the key with dashes.
const ATTRS: [(&str, &str, Form); 50] = [
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
    ("firewall_enabled", "firewall-enabled", Form::Flag),
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
    ("docker", "docker", Form::Flag),
    ("init_name", "init-name", Form::Text),
    ("restart_init", "restart-init", Form::Bool),
    ("internal_metadata_namespaces", "internal-metadata-namespaces", Form::List),
    ("maintain_resolvers", "maintain-resolvers", Form::Flag),
    ("do_not_inventory", "do-not-inventory", Form::Flag),
    ("archive_on_delete", "archive-on-delete", Form::Flag),
    ("app_svc_dependent", "app-svc-dependent", Form::Flag),
    ("default_gateway", "default-gateway", Form::Text),
    ("provisioning", "provisioning", Form::Bool),
    ("failed", "failed", Form::Text),
    ("transition", "transition", Form::Text),
    ("zlog_name", "zlog-name", Form::Text),
    ("zlog_mode", "zlog-mode", Form::Text),
    ("zlog_max_size", "zlog-max-size", Form::Number),
    ("spice_port", "spice-port", Form::Number),
    ("spice_password", "spice-password", Form::Base64),
    ("spice_opts", "spice-opts", Form::Base64),
    ("virtio_txburst", "virtio-txburst", Form::Number),
    ("virtio_txtimer", "virtio-txtimer", Form::Number),
];

/// Payload keys that live in a resource control: control, action, unit.
pub(super) const RCTLS: [(&str, &str, &str, u64); 11] = [
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

/// The alias that a configuration holds.
pub fn alias(zone: &Element) -> Option<String> {
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(zone.value("attr", "alias")?).ok()?;
    String::from_utf8(bytes).ok()
}

/// A value as it is stored, nothing if it is stored as absence.
fn formed(key: &str, value: &Value, form: Form) -> Result<Option<String>, NodeError> {
    let wrong = |what: &str| NodeError::invalid(key, format!("expected {what}, got {value}"));
    let text = || value.as_str().ok_or_else(|| wrong("a string"));
    let is_true = || match value {
        Value::Bool(set) => Ok(*set),
        Value::String(s) if s == "true" || s == "false" => Ok(s == "true"),
        _ => Err(wrong("true or false")),
    };
    let stored = match form {
        _ if value.is_null() || value == "" => String::new(),
        Form::Text => text()?.to_string(),
        Form::Base64 => base64::engine::general_purpose::STANDARD.encode(text()?),
        Form::Number => match value {
            Value::Number(n) => n.to_string(),
            Value::String(s) if s.parse::<i64>().is_ok() => s.clone(),
            _ => return Err(wrong("a number")),
        },
        Form::Bool => is_true()?.to_string(),
        Form::Flag if is_true()? => "true".to_string(),
        Form::Flag => String::new(),
        Form::List => match value {
            Value::Array(_) => forms::printed(value),
            _ => return Err(wrong("an array")),
        },
    };
    Ok(Some(stored).filter(|stored| !stored.is_empty()))
}

/// Sets a resource control, or removes it.
fn put_rctl(zone: &mut Element, name: &str, action: &str, limit: Option<String>) {
    zone.children.retain(|c| !(c.name == "rctl" && c.get("name") == Some(name)));
    let Some(limit) = limit else { return };
    let mut rctl = Element::new("rctl", &[("name", name)]);
    let attrs = [("priv", "privileged"), ("limit", limit.as_str()), ("action", action)];
    rctl.children.push(Element::new("rctl-value", &attrs));
    let at = zone.children.iter().rposition(|c| matches!(c.name.as_str(), "rctl" | "attr"));
    zone.children.insert(at.map_or(0, |n| n + 1), rctl);
}

/// Stores one property in the configuration; `null`, a blank and an empty list remove it. Returns false if the
/// property is not stored there.
pub fn apply(zone: &mut Element, key: &str, value: &Value) -> Result<bool, NodeError> {
    let hvm = zone.get("brand").is_some_and(payload::is_hvm);
    if !hvm && key == "ram" {
        return Ok(true);
    }
    if let Some((_, name, form)) = ATTRS.iter().find(|(k, _, _)| *k == key) {
        // Init is started again unless that is switched off.
        let stored =
            formed(key, value, *form)?.filter(|text| key != "restart_init" || text == "false");
        zone.set_value("attr", name, stored.as_deref());
        return Ok(true);
    }
    if let Some((_, name, action, unit)) = RCTLS.iter().find(|(k, _, _, _)| *k == key) {
        let limit = formed(key, value, Form::Number)?;
        let limit = limit.map(|text| -> Result<String, NodeError> {
            let limit = text.parse::<u64>().ok().and_then(|n| n.checked_mul(*unit));
            let wrong = || NodeError::invalid(key, format!("expected a whole number, got {value}"));
            limit.map(|limit| limit.to_string()).ok_or_else(wrong)
        });
        put_rctl(zone, name, action, limit.transpose()?);
        return Ok(true);
    }
    let listed = || -> Result<String, NodeError> {
        match value {
            Value::Array(_) => Ok(forms::printed(value)),
            _ => Ok(formed(key, value, Form::Text)?.unwrap_or_default()),
        }
    };
    match key {
        "autoboot" => {
            let value = formed(key, value, Form::Bool)?.unwrap_or_default();
            match zone.get("brand") == Some("kvm") {
                true => zone.set_value("attr", "vm-autoboot", Some(&value)),
                false => zone.put("autoboot", &value),
            }
        }
        "limit_priv" => zone.put("limitpriv", &listed()?),
        "fs_allowed" => zone.put("fs-allowed", &listed()?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns true if the property is one of those that a configuration stores by itself.
pub(super) fn is_stored(key: &str) -> bool {
    ATTRS.iter().any(|(known, ..)| *known == key)
        || RCTLS.iter().any(|(known, ..)| *known == key)
        || matches!(key, "autoboot" | "limit_priv" | "fs_allowed")
}

/// The properties that an attribute or a resource control stores, in their order.
pub(super) fn stored() -> impl Iterator<Item = &'static str> {
    let attrs = ATTRS.iter().map(|(key, ..)| *key);
    attrs.chain(RCTLS.iter().map(|(key, ..)| *key)).chain(["autoboot", "limit_priv", "fs_allowed"])
}
