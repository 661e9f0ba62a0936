// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parts of a VM's record in VMAPI that matter to volumes.

use serde_json::{Map, Value};

/// The state of a VM, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmState {
    Provisioning,
    Running,
    Stopped,
    Failed,
    Destroyed,
    /// Any other: it means nothing here.
    Other,
}

/// What is known of a VM.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Vm(Box<Vm>),
    /// VMAPI has no record of it.
    Gone,
    /// Its record has nothing: VMAPI keeps neither brand nor owner while a migration moves the VM, and a
    /// hidden copy is not the VM.
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    pub owner_uuid: String,
    /// Its node; none if VMAPI does not report it.
    pub server_uuid: Option<String>,
    pub state: VmState,
    /// Its tags, which a storage VM has from the labels of its volume.
    pub tags: Map<String, Value>,
    /// Its NICs, in its own order.
    pub nics: Vec<Nic>,
    /// Where clients mount what it exports: `IP:PATH`; none without a NIC.
    pub exported: Option<String>,
    /// The names of the volumes that it needs; none if its metadata does not name them.
    pub needs: Option<Vec<String>>,
}

/// A NIC of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub mac: String,
    /// Its network; none for one that NAPI did not make.
    pub network: Option<String>,
}

/// Returns the NICs of a VM's record.
pub fn nics(record: &Map<String, Value>) -> Vec<Nic> {
    let text = |nic: &Value, name: &str| nic.get(name).and_then(Value::as_str).map(str::to_owned);
    let nics = record.get("nics").and_then(Value::as_array).into_iter().flatten();
    nics.filter_map(|nic| Some(Nic { mac: text(nic, "mac")?, network: text(nic, "network_uuid") }))
        .collect()
}

/// Reads a record of VMAPI.
pub fn read(record: &Map<String, Value>) -> Fact {
    let text = |name: &str| record.get(name).and_then(Value::as_str).filter(|it| !it.is_empty());
    let is_hidden = record.get("do_not_inventory").is_some_and(|it| it == true || it == "true");
    let (Some(owner), Some(_brand), false) = (text("owner_uuid"), text("brand"), is_hidden) else {
        return Fact::Nothing;
    };
    let state = match text("state") {
        Some("provisioning") => VmState::Provisioning,
        Some("running") => VmState::Running,
        Some("stopped") => VmState::Stopped,
        Some("failed") => VmState::Failed,
        Some("destroyed") => VmState::Destroyed,
        _ => VmState::Other,
    };
    let metadata = record.get("internal_metadata").and_then(Value::as_object);
    Fact::Vm(Box::new(Vm {
        owner_uuid: owner.to_owned(),
        server_uuid: text("server_uuid").map(str::to_owned),
        state,
        tags: tags(record.get("tags")),
        nics: nics(record),
        exported: exported(record, metadata),
        needs: metadata.and_then(needs),
    }))
}

/// Returns the tags; a list, such as that of a volume whose labels were one, has its positions as names.
fn tags(value: Option<&Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(tags)) => tags.clone(),
        Some(Value::Array(tags)) => {
            tags.iter().enumerate().map(|(at, tag)| (at.to_string(), tag.clone())).collect()
        }
        _ => Map::new(),
    }
}

fn exported(record: &Map<String, Value>, metadata: Option<&Map<String, Value>>) -> Option<String> {
    let ip = record.get("nics")?.get(0)?.get("ip")?.as_str()?;
    let version = metadata.and_then(|metadata| metadata.get("volapi-nfs-version"));
    if version.is_some_and(|version| version == 2 || version == "2") {
        let zonepath = record.get("zonepath")?.as_str()?;
        return Some(format!("{ip}:{zonepath}/data"));
    }
    Some(format!("{ip}:/exports/data"))
}

fn needs(metadata: &Map<String, Value>) -> Option<Vec<String>> {
    let text = ["sdc:volumes", "docker:nfsvolumes"].iter().find_map(|key| metadata.get(*key))?;
    let volumes: Vec<Value> = match text {
        Value::String(text) => serde_json::from_str(text).ok()?,
        other => serde_json::from_value(other.clone()).ok()?,
    };
    let name = |volume: &Value| Some(volume.get("name")?.as_str()?.to_owned());
    Some(volumes.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(record: Value) -> Fact {
        read(record.as_object().unwrap())
    }

    #[test] // V33
    fn a_record_without_brand_or_owner_and_a_hidden_copy_say_nothing() {
        assert_eq!(known(json!({"state": "running", "owner_uuid": "o"})), Fact::Nothing);
        assert_eq!(known(json!({"state": "destroyed", "brand": "lx"})), Fact::Nothing);
        let hidden = json!({"brand": "lx", "owner_uuid": "o", "do_not_inventory": true});
        assert_eq!(known(hidden), Fact::Nothing);
    }

    #[test] // V28
    fn tags_that_are_a_list_become_an_object() {
        let of = |value: Value| {
            let vm = json!({"brand": "joyent", "owner_uuid": "o", "tags": value});
            let Fact::Vm(vm) = known(vm) else { panic!() };
            Value::Object(vm.tags)
        };
        assert_eq!(of(json!(["a", "b"])), json!({"0": "a", "1": "b"}));
        assert_eq!(of(json!({"a": "b"})), json!({"a": "b"}));
        assert_eq!(of(json!(null)), json!({}));
    }

    #[test] // V28
    fn the_path_follows_the_first_nic_and_the_version() {
        let of = |metadata: Value, nics: Value| {
            let vm = json!({"brand": "joyent", "owner_uuid": "o", "zonepath": "/zones/z",
                "internal_metadata": metadata, "nics": nics});
            let Fact::Vm(vm) = known(vm) else { panic!() };
            vm.exported
        };
        let nics = json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]);
        let second = of(json!({"volapi-nfs-version": 2}), nics.clone());
        assert_eq!(second.unwrap(), "10.0.0.1:/zones/z/data");
        assert_eq!(of(json!({}), nics).unwrap(), "10.0.0.1:/exports/data");
        assert_eq!(of(json!({}), json!([])), None);
    }

    #[test] // V30
    fn needs_are_read_from_either_key_and_damage_says_nothing() {
        let of = |metadata: Value| {
            let vm = json!({"brand": "lx", "owner_uuid": "o", "internal_metadata": metadata});
            let Fact::Vm(vm) = known(vm) else { panic!() };
            vm.needs
        };
        let both = json!({"sdc:volumes": r#"[{"name": "a"}]"#, "docker:nfsvolumes": "[]"});
        assert_eq!(of(both).unwrap(), ["a"]);
        assert_eq!(of(json!({"docker:nfsvolumes": r#"[{"name": "b"}]"#})).unwrap(), ["b"]);
        assert_eq!(of(json!({"sdc:volumes": "["})), None);
        assert_eq!(of(json!({})), None);
    }
}
