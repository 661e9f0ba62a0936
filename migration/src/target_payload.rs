// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The payload that creates the hidden target from the source's object (RFD 34, R3, R4).

use serde_json::{Map, Value, json};

/// Fields of an object that the node makes: a new VM has its own, or gets them another way.
const MADE_BY_THE_NODE: [&str; 32] = [
    "autoboot",
    "boot_timestamp",
    "create_timestamp", // set in the zone's configuration after the creation
    "datasets",
    "destroyed",
    "exit_status",
    "exit_timestamp",
    "filesystems",
    "free_space",
    "hvm",
    "image",
    "indestructible_delegated",
    "indestructible_zoneroot",
    "init_restarts",
    "last_modified",
    "missing",
    "nics",
    "package",
    "pid",
    "platform_buildstamp",
    "server_uuid",
    "snapshots",
    "state",
    "transition_expire",
    "transition_to",
    "v",
    "zfs_filesystem",
    "zone_state",
    "zonedid",
    "zoneid",
    "zonename",
    "zonepath",
];

/// Fields of a disk that the node makes.
const MADE_OF_A_DISK: [&str; 6] =
    ["path", "zfs_filesystem", "zpool", "missing", "uuid", "pci_slot"];

/// Why there is no payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPayload {
    /// The object lacks what every payload needs.
    #[error("the object has no {0}")]
    Lacks(&'static str),
    /// NAPI knows no network for a NIC, so that the target would get none.
    #[error("the NIC {0} has no network_uuid")]
    NoNetwork(String),
    /// A field is of another type than objects have.
    #[error("{0} of the object is not what it should be")]
    Shape(&'static str),
}

/// Returns the payload. The uuid, the MACs and so the addresses are the source's; the target is hidden, does
/// not boot, and can be deleted.
pub fn target_payload(source: &Map<String, Value>) -> Result<Map<String, Value>, NoPayload> {
    for field in ["uuid", "owner_uuid", "brand"] {
        source.get(field).and_then(Value::as_str).ok_or(NoPayload::Lacks(field))?;
    }
    let is_made = |name: &str| MADE_BY_THE_NODE.contains(&name);
    let kept = source.iter().filter(|(name, value)| !is_made(name) && !value.is_null());
    let mut payload: Map<String, Value> =
        kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    payload.insert("networks".into(), networks(source)?);
    if !list(source, "datasets")?.is_empty() {
        payload.insert("delegate_dataset".into(), json!(true));
    }
    if payload.contains_key("disks") {
        payload.insert("disks".into(), disks(source)?);
    }
    let filesystems = filesystems(source)?;
    if !filesystems.is_empty() {
        payload.insert("filesystems".into(), Value::Array(filesystems));
    }
    payload.insert("autoboot".into(), json!(false));
    payload.insert("do_not_inventory".into(), json!(true));
    payload.insert("vm_migration_target".into(), json!(true));
    Ok(payload)
}

/// One entry per NIC: its MAC makes NAPI give it the same NIC, addresses included.
fn networks(source: &Map<String, Value>) -> Result<Value, NoPayload> {
    let nics = list(source, "nics")?.iter().map(|nic| {
        let mac = nic["mac"].as_str().ok_or(NoPayload::Shape("nics"))?;
        let network = nic["network_uuid"].as_str();
        let network = network.ok_or_else(|| NoPayload::NoNetwork(mac.to_owned()))?;
        let mut entry = json!({"mac": mac, "uuid": network});
        if nic["primary"] == json!(true) {
            entry["primary"] = json!(true);
        }
        Ok(entry)
    });
    nics.collect()
}

fn disks(source: &Map<String, Value>) -> Result<Value, NoPayload> {
    let disks = list(source, "disks")?.iter().map(|disk| {
        let fields = disk.as_object().ok_or(NoPayload::Shape("disks"))?;
        let kept = fields.iter().filter(|(name, _)| !MADE_OF_A_DISK.contains(&name.as_str()));
        // The size is the current one: a disk may have been resized since it was made from its image.
        let disk = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(Value::Object(disk))
    });
    disks.collect()
}

/// The mounts of docker's shared volumes, by the volume's uuid as at the creation of the source; those that
/// the node adds itself are left out.
fn filesystems(source: &Map<String, Value>) -> Result<Vec<Value>, NoPayload> {
    let mut kept = Vec::new();
    if source.get("docker") != Some(&json!(true)) {
        return Ok(kept);
    }
    for mount in list(source, "filesystems")? {
        let from = mount["source"].as_str().ok_or(NoPayload::Shape("filesystems"))?;
        let volume = from.split_once("/volumes/").map(|(_, name)| name);
        if let Some(volume) = volume.filter(|name| mount["type"] == "lofs" && is_uuid(name)) {
            let mut mount = mount.clone();
            mount["source"] = json!(volume);
            kept.push(mount);
        }
    }
    Ok(kept)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

/// A list, or an empty one where the object has none.
fn list<'a>(source: &'a Map<String, Value>, name: &'static str) -> Result<&'a [Value], NoPayload> {
    match source.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(rows)) => Ok(rows),
        Some(_) => Err(NoPayload::Shape(name)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pretty_assertions::assert_eq;

    use super::*;

    /// The jobs of begin, each with the VM's object.
    fn jobs() -> Vec<Value> {
        let text = recordings::text("migrate-jobs.jsonl").unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let jobs: Vec<Value> = lines.map(|line| line["job"].clone()).collect();
        jobs.into_iter().filter(|job| job["task"] == "migrate-begin").collect()
    }

    #[test] // R4
    fn the_payload_of_every_recorded_vm_is_hidden_and_has_its_networks() {
        let jobs = jobs();
        assert!(jobs.len() >= 10, "{}", jobs.len());
        for job in jobs {
            let vm = job["vm"].as_object().unwrap();
            let payload = target_payload(vm).unwrap();
            // VMAPI has resolved what it was given: `uuid` became `ipv4_uuid` and a count.
            let mut networks = job["filteredNetworks"]["networks"].clone();
            for network in networks.as_array_mut().unwrap() {
                let network = network.as_object_mut().unwrap();
                let uuid = network.shift_remove("ipv4_uuid").unwrap();
                network.shift_remove("ipv4_count");
                network.insert("uuid".into(), uuid);
            }
            assert_eq!(payload["networks"], networks);
            for field in
                ["uuid", "owner_uuid", "brand", "billing_id", "alias", "quota", "max_swap", "tags"]
            {
                assert_eq!(payload[field], vm[field], "{field}");
            }
            assert_eq!(payload["autoboot"], json!(false));
            assert_eq!(payload["do_not_inventory"], json!(true));
            assert_eq!(payload["vm_migration_target"], json!(true));
            let made = payload.keys().filter(|name| MADE_BY_THE_NODE.contains(&name.as_str()));
            assert_eq!(made.collect::<Vec<_>>(), ["autoboot"]);
        }
    }

    fn payload(fields: Value) -> Result<Value, NoPayload> {
        let mut vm = json!({"uuid": "u", "owner_uuid": "o", "brand": "bhyve"});
        vm.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        target_payload(vm.as_object().unwrap()).map(Value::Object)
    }

    #[test] // R4
    fn what_the_target_must_not_have_is_left_out() {
        let made = payload(json!({
            "indestructible_zoneroot": true, "indestructible_delegated": true, "zoneid": 7, "pid": 9,
            "snapshots": [{"name": "a"}], "datasets": ["zones/u/data"], "package_name": null, "ram": 1024,
            "state": "running", "autoboot": true, "filesystems": [{"source": "/zones/u/x", "type": "lofs"}],
        }));
        let want = json!({
            "uuid": "u", "owner_uuid": "o", "brand": "bhyve", "ram": 1024, "networks": [],
            "delegate_dataset": true, "autoboot": false, "do_not_inventory": true, "vm_migration_target": true,
        });
        assert_eq!(made.unwrap(), want);
    }

    #[test] // R4
    fn disks_and_the_volumes_of_docker_are_given_as_at_a_creation() {
        let disks = json!([
            {"path": "/dev/zvol/rdsk/zones/u/disk0", "zfs_filesystem": "zones/u/disk0", "zpool": "zones",
             "size": 10240, "image_uuid": "i", "boot": true, "model": "virtio"},
            {"path": "/dev/zvol/rdsk/zones/u/disk1", "size": 2048, "model": "virtio", "block_size": 8192},
        ]);
        assert_eq!(
            payload(json!({"disks": disks})).unwrap()["disks"],
            json!([
                {"size": 10240, "image_uuid": "i", "boot": true, "model": "virtio"},
                {"size": 2048, "model": "virtio", "block_size": 8192},
            ])
        );
        let volume = "72d83477-859f-4f9c-9103-d343b65592eb";
        let mounts = json!([
            {"source": format!("/zones/u/volumes/{volume}"), "target": "/data", "type": "lofs"},
            {"source": "/zones/u/hosts", "target": "/etc/hosts", "type": "lofs"},
        ]);
        let made = payload(json!({"docker": true, "filesystems": mounts})).unwrap();
        let want = json!([{"source": volume, "target": "/data", "type": "lofs"}]);
        assert_eq!(made["filesystems"], want);
    }

    #[test] // R4
    fn an_object_that_cannot_be_a_target_is_refused() {
        let nic = json!([{"mac": "90:b8:d0:00:00:01"}]);
        let no_network = NoPayload::NoNetwork("90:b8:d0:00:00:01".into());
        assert_eq!(payload(json!({"nics": nic})), Err(no_network));
        assert_eq!(payload(json!({"nics": "x"})), Err(NoPayload::Shape("nics")));
        assert_eq!(payload(json!({"nics": [1]})), Err(NoPayload::Shape("nics")));
        assert_eq!(payload(json!({"disks": [1]})), Err(NoPayload::Shape("disks")));
        assert_eq!(payload(json!({"brand": null})), Err(NoPayload::Lacks("brand")));
    }
}
