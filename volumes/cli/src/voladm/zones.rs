// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Volumes with the records of their storage VMs and users, and which ones a command line means.

use std::collections::{BTreeMap, BTreeSet};

use daemon::cli::Usage;
use daemon::cli::names::{Kind, find_kind};
use sdc_clients::quoted;
use sdc_clients::vmapi::{VmQuery, Vmapi};
use sdc_clients::volapi::{Troubles, Volume};
use serde_json::{Map, Value};

use super::args::Chosen;
use super::services::Services;
use super::shell::word;
use sdc_clients::restify::is_uuid;

const OWNER: Kind = Kind { one: "owner", name: "name" };
const VOLUME: Kind = Kind { one: "volume", name: "name" };

/// VMAPI's records by uuid.
pub(super) type Vms = BTreeMap<String, Map<String, Value>>;

/// Returns a text of a record.
pub(super) fn text<'a>(record: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    record.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Returns true if the record is of a VM that is neither destroyed nor failed.
pub(super) fn is_live(record: &Map<String, Value>) -> bool {
    !matches!(text(record, "state"), Some("destroyed" | "failed"))
}

/// Returns what keeps a volume from being used: what volapi reports of its storage VM, else what VMAPI does. None if it
/// can be used, or its state shows it.
pub(super) fn ails(volume: &Volume, vms: &Vms, troubles: &Troubles) -> Option<String> {
    let zone = vms.get(&volume.vm_uuid);
    let state = zone.and_then(|zone| text(zone, "state"));
    let called = format!("its storage VM {}", word(&volume.vm_uuid));
    match (volume.state.as_str(), state) {
        ("ready", _) => {
            if let Some(down) = troubles.degraded.iter().find(|it| it.vm_uuid == volume.vm_uuid) {
                let is = if down.storage_vm == "stopped" {
                    "is stopped"
                } else {
                    "runs and does not serve"
                };
                let why =
                    if down.why.is_empty() { String::new() } else { format!(": {}", down.why) };
                return Some(format!("{called} {is} since {}{why}", down.since));
            }
            (state == Some("stopped")).then(|| format!("{called} is stopped"))
        }
        ("failed", state) => {
            let is = state.filter(|state| *state != "destroyed").map(word);
            let mut failed = troubles.failed.iter().flatten().filter(|it| it.volume == volume.uuid);
            let reason = failed.find_map(|it| it.why.as_ref()).or(volume.failure.as_ref());
            Some(match (reason, is) {
                (Some(why), Some(is)) => format!("{why}; {called} is {is}"),
                (Some(why), None) => why.clone(),
                (None, is) => format!("{called} is {}", is.as_deref().unwrap_or("gone")),
            })
        }
        _ => None,
    }
}

/// Returns `NAME (UUID)`, safe to be typed.
pub(super) fn called(volume: &Volume) -> String {
    format!("{} ({})", word(&volume.name), word(&volume.uuid))
}

/// Returns the uuid of an owner; a beginning is looked for among those who have volumes.
pub(super) fn owner(volumes: &[Volume], typed: &str) -> Result<String, Usage> {
    if is_uuid(typed) {
        return Ok(typed.to_owned());
    }
    let mut owners: Vec<(&str, &str)> =
        volumes.iter().map(|volume| (volume.owner_uuid.as_str(), "")).collect();
    owners.sort_unstable();
    match owners.iter().any(|(uuid, _)| uuid.starts_with(typed)) {
        true => find_kind(OWNER, &owners, typed),
        false => Err(Usage(format!(
            "{} is not the uuid of an owner, nor the beginning of one who has volumes",
            quoted(typed)
        ))),
    }
}

/// Returns the volumes that a command line means: one, or all of an owner.
pub(super) async fn chosen(services: &Services, asked: &Chosen) -> anyhow::Result<Vec<Volume>> {
    let all = services.volapi()?.list(None).await?;
    let whose = asked.owner.as_deref().map(|typed| owner(&all, typed)).transpose()?;
    let is_his = |it: &Volume| whose.as_ref().is_none_or(|whose| it.owner_uuid == *whose);
    let volumes: Vec<Volume> = all.iter().filter(|it| is_his(it)).cloned().collect();
    match (&asked.volume, &whose) {
        (None, None) => {
            let what = "which volume? Give its uuid or name, or --owner alone for all of his";
            Err(Usage(what.to_owned()).into())
        }
        (None, Some(owner)) if volumes.is_empty() => {
            Err(Usage(format!("{owner} has no volume")).into())
        }
        (None, Some(_)) => Ok(volumes),
        (Some(typed), Some(owner)) => {
            if let Err(unknown) = one(&volumes, typed) {
                // It may be another owner's.
                return Err(match one(&all, typed) {
                    Ok(of_other) => {
                        let (called, other) = (called(&of_other), &of_other.owner_uuid);
                        Usage(format!("{called} belongs to {other}, not to {owner}")).into()
                    }
                    Err(_) => unknown.into(),
                });
            }
            Ok(vec![one(&volumes, typed)?])
        }
        (Some(typed), None) => Ok(vec![one(&volumes, typed)?]),
    }
}

/// Finds the volume that is meant, by its uuid, a beginning of it, its name, or the uuid of its storage VM. A whole uuid
/// goes before a name that a tenant has made of it.
fn one(volumes: &[Volume], typed: &str) -> Result<Volume, Usage> {
    let lower = typed.to_ascii_lowercase();
    let whole = |of: fn(&Volume) -> &str| volumes.iter().find(|it| of(it) == lower);
    if let Some(volume) = whole(|it| &it.uuid).or_else(|| whole(|it| &it.vm_uuid)) {
        return Ok(volume.clone());
    }
    let names = volumes.iter().map(|it| (it.uuid.as_str(), it.name.as_str()));
    let known: Vec<(&str, &str)> = names.collect();
    let uuid = find_kind(VOLUME, &known, typed)?;
    let found = volumes.iter().find(|it| it.uuid == uuid).cloned();
    found.ok_or_else(|| Usage(format!("no volume {}", quoted(typed))))
}

/// Reads VMAPI's records of these VMs, destroyed ones too. A VM that VMAPI does not know is absent.
pub(super) async fn records<'a>(
    vmapi: &Vmapi,
    uuids: impl Iterator<Item = &'a str>,
) -> Result<Vms, sdc_clients::Error> {
    let uuids: BTreeSet<&str> = uuids.filter(|uuid| is_uuid(uuid)).collect();
    if uuids.is_empty() {
        return Ok(Vms::new());
    }
    let uuids = uuids.into_iter().map(str::to_owned).collect();
    let query = VmQuery { uuids, fields: vec!["*".to_owned()], ..VmQuery::default() };
    let found = vmapi.records(&query).await?;
    Ok(by_uuid(found))
}

/// Returns the records by their uuids.
pub(super) fn by_uuid(records: Vec<Map<String, Value>>) -> Vms {
    let keyed = records.into_iter().filter_map(|vm| Some((text(&vm, "uuid")?.to_owned(), vm)));
    keyed.collect()
}

/// Where a VM mounts a volume, and how; none if its metadata does not name it.
pub(super) fn mount(user: &Map<String, Value>, volume: &str) -> Option<(String, String)> {
    let metadata = user.get("internal_metadata")?.as_object()?;
    let listed = ["sdc:volumes", "docker:nfsvolumes"].iter().find_map(|key| metadata.get(*key))?;
    let volumes: Vec<Value> = match listed {
        Value::String(text) => serde_json::from_str(text).ok()?,
        other => serde_json::from_value(other.clone()).ok()?,
    };
    let mount = volumes.iter().find(|it| it["name"] == volume)?;
    let mode = mount["mode"].as_str().unwrap_or("rw");
    Some((mount["mountpoint"].as_str()?.to_owned(), mode.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(uuid: &str, name: &str) -> Volume {
        serde_json::from_value(json!({"uuid": uuid, "name": name, "owner_uuid": "o",
            "size": 10240, "state": "ready", "vm_uuid": format!("vm-of-{uuid}")}))
        .unwrap()
    }

    #[test] // V81
    fn a_volume_is_found_by_uuid_beginning_name_and_storage_vm() {
        let volumes = [volume("aaaa1111", "data"), volume("aaaa2222", "logs"), volume("b", "data")];
        for (typed, want) in [
            ("aaaa1111", "aaaa1111"),
            ("aaaa2", "aaaa2222"),
            ("logs", "aaaa2222"),
            ("vm-of-aaaa2222", "aaaa2222"),
        ] {
            assert_eq!(one(&volumes, typed).unwrap().uuid, want);
        }
        let said = one(&volumes, "data").unwrap_err().to_string();
        assert_eq!(said, "\"data\" fits 2 volumes: aaaa1111 data, b data");
        let named = [volume("a0", "data"), volume("c", "vm-of-a0"), volume("b", "a0")];
        for (typed, want) in [("a0", "a0"), ("A0", "a0"), ("vm-of-a0", "a0"), ("b", "b")] {
            assert_eq!(one(&named, typed).unwrap().uuid, want, "a whole uuid is no name");
        }
        let said = one(&volumes, "none").unwrap_err().to_string();
        assert!(said.starts_with("no volume has the name \"none\""), "{said}");
    }

    #[test] // V81
    fn a_mount_is_read_from_either_key() {
        let of = |metadata: Value| {
            mount(json!({"internal_metadata": metadata}).as_object().unwrap(), "data")
        };
        let text = r#"[{"name": "x"}, {"name": "data", "mountpoint": "/d", "mode": "ro"}]"#;
        assert_eq!(of(json!({"sdc:volumes": text})), Some(("/d".to_owned(), "ro".to_owned())));
        let list = json!([{"name": "data", "mountpoint": "/e"}]);
        assert_eq!(of(json!({"docker:nfsvolumes": list})).unwrap().1, "rw");
        for damaged in [json!({}), json!({"sdc:volumes": "["}), json!({"sdc:volumes": "[]"})] {
            assert_eq!(of(damaged), None);
        }
    }
}
