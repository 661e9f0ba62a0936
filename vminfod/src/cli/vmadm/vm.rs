// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A VM in listings and look-ups: the object and its computed properties. Pure.

use sdc_clients::vminfod::VmObject;

/// An object with `type` and, where the brand computes it, `ram`.
#[derive(Debug, Clone)]
pub struct Vm {
    pub object: VmObject,
    /// `ram` has no source: the key exists without a value.
    pub ram_is_undefined: bool,
}

impl Vm {
    /// Computes `type` and `ram`. New keys are appended, existing keys keep their place.
    pub fn new(mut object: VmObject) -> Vm {
        let (kind, has_ram) = match object.get("brand").and_then(|brand| brand.as_str()) {
            Some("bhyve") => ("BHYV", true),
            Some("kvm") => ("KVM", true),
            Some("lx") => ("LX", false),
            _ => ("OS", false),
        };
        object.insert("type".to_owned(), kind.into());
        if has_ram {
            return Vm { object, ram_is_undefined: false };
        }
        let memory = object.get("max_physical_memory").cloned();
        let ram_is_undefined = memory.is_none();
        match memory {
            Some(memory) => drop(object.insert("ram".to_owned(), memory)),
            None => drop(object.shift_remove("ram")),
        }
        Vm { object, ram_is_undefined }
    }

    /// Keeps only these properties, in the VM's order; `None` if it has none of them.
    pub fn project(&self, wanted: &[&str]) -> Option<Vm> {
        let ram_is_undefined = self.ram_is_undefined && wanted.contains(&"ram");
        let kept = self.object.iter().filter(|(key, _)| wanted.contains(&key.as_str()));
        let object: VmObject = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        (ram_is_undefined || !object.is_empty()).then_some(Vm { object, ram_is_undefined })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vm(value: Value) -> Vm {
        let Value::Object(object) = value else { panic!("{value} is no object") };
        Vm::new(object)
    }

    #[test]
    fn computed_keys_come_last_or_keep_their_place() {
        let made = vm(json!({"brand": "lx", "max_physical_memory": 128}));
        assert_eq!(
            Value::Object(made.object).to_string(),
            r#"{"brand":"lx","max_physical_memory":128,"type":"LX","ram":128}"#
        );
        let made = vm(json!({"ram": 1, "type": "?", "brand": "x", "max_physical_memory": 2}));
        assert_eq!(
            Value::Object(made.object).to_string(),
            r#"{"ram":2,"type":"OS","brand":"x","max_physical_memory":2}"#
        );
        let made = vm(json!({"ram": 1, "brand": "kvm", "max_physical_memory": 2}));
        assert_eq!(made.object["ram"], 1);
    }

    #[test]
    fn a_key_without_value_keeps_its_vm() {
        let made = vm(json!({"uuid": "a", "brand": "lx"}));
        assert!(made.ram_is_undefined);
        assert!(made.project(&["ram"]).is_some_and(|vm| vm.object.is_empty()));
        assert!(made.project(&["quota"]).is_none());
        assert!(vm(json!({"brand": "kvm"})).project(&["ram"]).is_none());
    }
}
