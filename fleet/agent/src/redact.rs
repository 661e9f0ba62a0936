// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What leaves the node: the fields of a list. Values of metadata and passwords are published as digests under a key of
//! this machine, with the VM and the map: a change shows, a short password cannot be guessed, and nobody finds out a
//! neighbour's by comparing it with his own. Pure.

use std::collections::BTreeSet;

use ring::hmac;
use sdc_clients::fleet::is_published;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value};

/// The maps whose values stay.
const MAPS: [&str; 2] = ["customer_metadata", "internal_metadata"];
/// Fields of a VM that are passwords.
const PASSWORDS: [&str; 2] = ["vnc_password", "spice_password"];
/// Bytes of a digest that are shown.
const SHOWN: usize = 16;

/// How values are replaced.
#[derive(Debug)]
pub(crate) struct Redaction {
    key: hmac::Key,
    /// Names of metadata that are published as they are.
    open: BTreeSet<String>,
}

impl Redaction {
    /// With this machine's key; the values of the names in `open` are published.
    pub(crate) fn new(key: &[u8], open: impl IntoIterator<Item = String>) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        Self { key, open: open.into_iter().collect() }
    }

    /// Leaves in an object what leaves the node.
    pub(crate) fn object(&self, vm: &mut VmObject) {
        vm.retain(|name, _| is_published(name));
        let of = vm.uuid().unwrap_or_default().to_owned();
        for name in PASSWORDS {
            if let Some(value) = vm.get_mut(name) {
                self.value([&of, "", name], value);
            }
        }
        for name in MAPS {
            if let Some(value) = vm.get_mut(name) {
                self.members([&of, name], value);
            }
        }
    }

    /// The same in an event: in its object and in its records of changes.
    pub(crate) fn event(&self, line: &mut Map<String, Value>) {
        if let Some(Value::Object(vm)) = line.get_mut("vm") {
            self.object(vm);
        }
        let named =
            [line.get("vm").and_then(|vm| vm.get("uuid")), line.get("uuid"), line.get("zonename")];
        let of = named.into_iter().flatten().find_map(Value::as_str).unwrap_or_default().to_owned();
        let changes = line.get_mut("changes").and_then(Value::as_array_mut);
        let Some(changes) = changes else { return };
        changes.retain(|it| it["path"][0].as_str().is_some_and(is_published));
        for change in changes {
            self.change(&of, change);
        }
    }

    fn change(&self, of: &str, change: &mut Value) {
        let path: Vec<String> = change["path"]
            .as_array()
            .map(|path| path.iter().map(|it| it.as_str().unwrap_or_default().to_owned()).collect())
            .unwrap_or_default();
        let Some(first) = path.first() else { return };
        let (is_map, is_password) =
            (MAPS.contains(&first.as_str()), PASSWORDS.contains(&first.as_str()));
        if !is_map && !is_password {
            return;
        }
        for side in ["oldValue", "newValue"] {
            let Some(value) = change.get_mut(side) else { continue };
            match path.get(1) {
                Some(name) if is_map => self.value([of, first, name], value),
                _ if is_map => self.members([of, first], value),
                _ => self.value([of, "", first], value),
            }
        }
    }

    /// Every value of a map; what should be a map and is none is a value.
    fn members(&self, [of, map]: [&str; 2], value: &mut Value) {
        match value {
            Value::Object(all) => {
                all.iter_mut().for_each(|(name, value)| self.value([of, map, name], value));
            }
            Value::Null => {}
            value => self.value([of, map, ""], value),
        }
    }

    fn value(&self, [of, map, name]: [&str; 3], value: &mut Value) {
        if self.open.contains(name) {
            return;
        }
        let text = format!("{of}\0{map}\0{name}\0{value}");
        let tag = hmac::sign(&self.key, text.as_bytes());
        let hex: String =
            tag.as_ref().iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
        *value = Value::String(format!("hmac-sha256:{hex}"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn redaction() -> Redaction {
        Redaction::new(b"key of a test", ["public".to_owned()])
    }

    fn redacted(mut line: Value) -> Value {
        redaction().event(line.as_object_mut().unwrap());
        line
    }

    #[test]
    fn values_become_digests_and_names_stay() {
        let line = redacted(json!({"vm": {"alias": "a", "vnc_password": "hunter2",
            "customer_metadata": {"root_authorized_keys": "ssh-rsa AAAA", "public": "yes"},
            "internal_metadata": {"root_pw": "secret"}, "tags": {"secret": "shown"}}}));
        let vm = &line["vm"];
        assert_eq!(vm["customer_metadata"]["public"], "yes");
        assert_eq!((&vm["alias"], &vm["tags"]["secret"]), (&json!("a"), &json!("shown")));
        for value in [
            &vm["customer_metadata"]["root_authorized_keys"],
            &vm["internal_metadata"]["root_pw"],
            &vm["vnc_password"],
        ] {
            assert!(value.as_str().unwrap().starts_with("hmac-sha256:"), "{value}");
        }
    }

    #[test]
    fn records_of_changes_have_digests_too() {
        let record = |path: Value, old: Value, new: Value| json!({"path": path, "action": "changed", "oldValue": old, "newValue": new});
        let line = redacted(json!({"changes": [
            record(json!(["internal_metadata", "root_pw"]), json!("secret"), json!("secret2")),
            record(json!(["customer_metadata"]), json!({"k": "secret"}), json!({"k": "secret3"})),
            record(json!(["customer_metadata"]), json!(["secret"]), Value::Null),
            record(json!(["spice_password"]), json!("secret"), json!("secret4")),
            record(json!(["alias"]), json!("old"), json!("new")),
        ]}));
        assert!(!line.to_string().contains("secret"), "{line}");
        assert_eq!(line["changes"][4]["newValue"], "new");
        assert_eq!(line["changes"][1]["newValue"].as_object().unwrap().len(), 1);
    }

    #[test] // N39
    fn the_same_value_of_another_vm_or_map_has_another_digest() {
        let digests = |vm: &str| {
            let same = json!({"root_pw": "secret"});
            let mut line = json!({"vm": {"uuid": vm, "customer_metadata": same, "internal_metadata": same,
                "vnc_password": "secret"},
                "changes": [{"path": ["internal_metadata", "root_pw"], "newValue": "secret"}]});
            line = redacted(line);
            let vm = &line["vm"];
            assert_eq!(vm["internal_metadata"]["root_pw"], line["changes"][0]["newValue"]);
            [
                &vm["customer_metadata"]["root_pw"],
                &vm["internal_metadata"]["root_pw"],
                &vm["vnc_password"],
            ]
            .map(|it| it.as_str().unwrap().to_owned())
        };
        let all: std::collections::BTreeSet<String> =
            [digests("one"), digests("two")].into_iter().flatten().collect();
        assert_eq!(all.len(), 6, "{all:?}");
    }

    #[test] // N39
    fn what_is_in_no_list_stays_on_the_node() {
        let line = redacted(
            json!({"vm": {"uuid": "u", "alias": "a", "qemu_opts": "secret", "spice_opts": "secret",
            "qemu_extra_opts": "secret", "bhyve_extra_opts": "secret", "of_a_later_version": "secret"},
            "changes": [{"path": ["spice_opts"], "oldValue": null, "newValue": "secret"},
                {"path": ["alias"], "newValue": "a"}]}),
        );
        assert!(!line.to_string().contains("secret"), "{line}");
        assert_eq!(line["changes"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_digest_is_the_machines_own() {
        let of = |key: &[u8]| {
            let mut vm = json!({"internal_metadata": {"root_pw": "secret"}});
            Redaction::new(key, []).object(vm.as_object_mut().unwrap());
            vm
        };
        assert_eq!(of(b"one"), of(b"one"));
        assert_ne!(of(b"one"), of(b"two"));
    }

    proptest! {
        #[test]
        // N4
        fn no_value_of_metadata_is_in_what_is_published(
            name in "[a-z]{1,8}", value in "[A-Z]{12,20}", whole in any::<bool>(),
        ) {
            let change = if whole {
                json!({"path": ["customer_metadata"], "newValue": {&name: &value}})
            } else {
                json!({"path": ["customer_metadata", &name], "newValue": &value})
            };
            let line = json!({"vm": {"customer_metadata": {&name: &value},
                "internal_metadata": {&name: {"deep": [&value]}}}, "changes": [change]});
            let text = redacted(line).to_string();
            prop_assert!(!text.contains(&value), "{}", text);
            prop_assert!(text.contains(&name));
        }
    }
}
