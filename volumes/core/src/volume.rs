// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The volume record: bucket `volapi_volumes`, key its uuid. It keeps the order in which its fields were
//! set, which is the order in which clients see them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::script::{self, show_time};
use super::snapshot::{Rollback, Snapshot};

pub use super::state::State;

/// The only type of volumes.
pub const TYPE: &str = "tritonnfs";

/// The field of the snapshots, and that of a roll-back, which is not shown.
const SNAPSHOTS: &str = "snapshots";
const ROLLBACK: &str = "rollback";
/// Why it has failed, which deployed clients do not see.
const FAILURE: &str = "failure";

/// A volume as it is stored. Clients read it as `sdc_clients::volapi::Volume`, which keeps neither the order of the
/// fields nor what only this service sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    fields: Map<String, Value>,
    state: State,
}

/// What a new volume has.
#[derive(Clone, Debug)]
pub struct NewVolume {
    pub uuid: String,
    pub labels: Option<Value>,
    pub name: String,
    pub owner_uuid: String,
    /// In MiB.
    pub size: f64,
    /// In milliseconds since 1970.
    pub create_timestamp: i64,
    pub refs: Vec<String>,
    pub networks: Vec<String>,
    pub vm_uuid: String,
}

impl Volume {
    /// Returns a volume that is being created.
    pub fn new(new: NewVolume) -> Volume {
        let mut fields = Map::new();
        fields.insert("uuid".to_owned(), new.uuid.into());
        if let Some(labels) = new.labels {
            fields.insert("labels".to_owned(), labels);
        }
        fields.insert("name".to_owned(), new.name.into());
        fields.insert("owner_uuid".to_owned(), new.owner_uuid.into());
        fields.insert("size".to_owned(), vm_model::js::number(new.size));
        fields.insert("type".to_owned(), TYPE.into());
        fields.insert("create_timestamp".to_owned(), new.create_timestamp.into());
        fields.insert("state".to_owned(), State::Creating.name().into());
        if !new.refs.is_empty() {
            fields.insert("refs".to_owned(), new.refs.into());
        }
        fields.insert("networks".to_owned(), new.networks.into());
        fields.insert("vm_uuid".to_owned(), new.vm_uuid.into());
        Volume { fields, state: State::Creating }
    }

    /// Reads a stored record.
    pub fn read(fields: Map<String, Value>) -> Result<Volume, &'static str> {
        for name in ["uuid", "name", "owner_uuid", "type", "vm_uuid"] {
            if !fields.get(name).is_some_and(Value::is_string) {
                return Err(name);
            }
        }
        let is_texts = |value: &Value| {
            value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
        };
        for name in ["refs", "networks"] {
            if !fields.get(name).is_none_or(is_texts) {
                return Err(name);
            }
        }
        for name in ["size", "create_timestamp"] {
            if !fields.get(name).is_some_and(Value::is_number) {
                return Err(name);
            }
        }
        let read = |name: &str| fields.get(name).cloned().unwrap_or_default();
        if serde_json::from_value::<Option<Vec<Snapshot>>>(read(SNAPSHOTS)).is_err() {
            return Err(SNAPSHOTS);
        }
        if serde_json::from_value::<Option<Rollback>>(read(ROLLBACK)).is_err() {
            return Err(ROLLBACK);
        }
        let state = fields.get("state").and_then(Value::as_str).and_then(|it| it.parse().ok());
        Ok(Volume { fields, state: state.ok_or("state")? })
    }

    fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        let items = self.fields.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).collect()
    }

    pub fn uuid(&self) -> &str {
        self.text("uuid")
    }

    pub fn name(&self) -> &str {
        self.text("name")
    }

    pub fn owner_uuid(&self) -> &str {
        self.text("owner_uuid")
    }

    /// Its storage VM.
    pub fn vm_uuid(&self) -> &str {
        self.text("vm_uuid")
    }

    pub fn kind(&self) -> &str {
        self.text("type")
    }

    /// Its size in MiB.
    pub fn size(&self) -> f64 {
        self.fields.get("size").and_then(Value::as_f64).unwrap_or_default()
    }

    /// When it was made, in milliseconds since 1970.
    pub fn create_timestamp(&self) -> i64 {
        self.fields.get("create_timestamp").and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The VMs that use it, in the order in which they came.
    pub fn refs(&self) -> Vec<&str> {
        self.texts("refs")
    }

    /// The networks of its storage VM.
    pub fn networks(&self) -> Vec<&str> {
        self.texts("networks")
    }

    /// Its snapshots, the oldest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let read = self.fields.get(SNAPSHOTS).map(|all| serde_json::from_value(all.clone()));
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// The roll-back that goes on.
    pub fn rollback(&self) -> Option<Rollback> {
        serde_json::from_value(self.fields.get(ROLLBACK)?.clone()).ok()
    }

    /// Sets the snapshots. The field goes with the last one.
    pub fn set_snapshots(&mut self, snapshots: &[Snapshot]) {
        self.set_or_remove(SNAPSHOTS, (!snapshots.is_empty()).then_some(snapshots));
    }

    /// Sets the roll-back that goes on.
    pub fn set_rollback(&mut self, rollback: Option<&Rollback>) {
        self.set_or_remove(ROLLBACK, rollback);
    }

    fn set_or_remove(&mut self, name: &str, value: Option<impl Serialize>) {
        match value.and_then(|value| serde_json::to_value(value).ok()) {
            Some(value) => drop(self.fields.insert(name.to_owned(), value)),
            None => drop(self.fields.shift_remove(name)),
        }
    }

    /// Its volume package, for billing (RFD 26 §Volume objects).
    pub fn billing_id(&self) -> Option<&str> {
        self.fields.get("billing_id").and_then(Value::as_str)
    }

    /// The value of one of its tags.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.fields.get("labels")?.get(key)?.as_str()
    }

    /// Sets its volume package.
    pub fn set_billing_id(&mut self, package: &str) {
        self.fields.insert("billing_id".to_owned(), package.into());
    }

    /// Sets the networks, if they are others than before.
    pub fn set_networks(&mut self, networks: &[&str]) {
        let had = self.networks();
        let is_same = |a: &[&str], b: &[&str]| a.iter().all(|one| b.contains(one));
        if !(is_same(&had, networks) && is_same(networks, &had)) {
            self.fields.insert("networks".to_owned(), networks.into());
        }
    }

    /// `IP:PATH`, where clients mount it from, once it is known.
    pub fn filesystem_path(&self) -> Option<&str> {
        self.fields.get("filesystem_path").and_then(Value::as_str)
    }

    pub fn set_name(&mut self, name: &str) {
        self.fields.insert("name".to_owned(), name.into());
    }

    /// Why it has failed, where that is known.
    pub fn failure(&self) -> Option<&str> {
        self.fields.get(FAILURE).and_then(Value::as_str)
    }

    /// Sets the state `failed`, with the reason.
    pub fn fail(&mut self, why: &Failure) {
        self.set_state(State::Failed);
        self.fields.insert(FAILURE.to_owned(), why.to_string().into());
    }

    pub fn set_state(&mut self, state: State) {
        self.state = state;
        self.fields.shift_remove(FAILURE);
        self.fields.insert("state".to_owned(), state.name().into());
    }

    /// Sets the storage VM.
    pub fn set_vm_uuid(&mut self, vm: &str) {
        self.fields.insert("vm_uuid".to_owned(), vm.into());
    }

    pub fn set_labels(&mut self, labels: &Map<String, Value>) {
        self.fields.insert("labels".to_owned(), labels.clone().into());
    }

    /// Sets `IP:PATH`, where clients mount it from.
    pub fn set_filesystem_path(&mut self, path: &str) {
        self.fields.insert("filesystem_path".to_owned(), path.into());
    }

    /// Adds a VM to those that use it; returns whether it was not there.
    pub fn add_ref(&mut self, vm: &str) -> bool {
        if self.refs().contains(&vm) {
            return false;
        }
        let refs = self.fields.entry("refs").or_insert_with(|| json!([]));
        if let Some(refs) = refs.as_array_mut() {
            refs.push(vm.into());
        }
        true
    }

    /// Removes a VM from those that use it; returns whether it was there. The field goes with the last one.
    pub fn remove_ref(&mut self, vm: &str) -> bool {
        let Some(refs) = self.fields.get_mut("refs").and_then(Value::as_array_mut) else {
            return false;
        };
        let before = refs.len();
        refs.retain(|other| other != vm);
        let (left, removed) = (refs.len(), before > refs.len());
        if left == 0 {
            self.fields.shift_remove("refs");
        }
        removed
    }

    /// Returns the volume as clients see it.
    pub fn shown(&self) -> Value {
        self.clone().into_shown()
    }

    /// Returns the same with the reason of a failure.
    pub fn into_explained(mut self) -> Value {
        let failure = self.fields.shift_remove(FAILURE);
        let mut shown = self.into_shown();
        if let Some(failure) = failure {
            shown[FAILURE] = failure;
        }
        shown
    }

    /// The same of a volume that no VM needs any more: a list has many.
    pub fn into_shown(mut self) -> Value {
        let snapshots = self.snapshots();
        show_time(&mut self.fields);
        self.fields.shift_remove(ROLLBACK);
        self.fields.shift_remove(FAILURE);
        if let Some(place) = self.fields.get_mut(SNAPSHOTS) {
            *place = snapshots.iter().map(Snapshot::shown).collect();
        }
        self.fields.into()
    }
}

impl Serialize for Volume {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Volume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Volume, D::Error> {
        let fields = Map::deserialize(deserializer)?;
        let what =
            |field| de::Error::custom(format!("field {field} of a volume is missing or wrong"));
        Volume::read(fields).map_err(what)
    }
}

/// Returns the labels that a request gives: none for what counts as nothing there.
pub fn labels_of(value: Option<&Value>) -> Option<Value> {
    let is_empty = |value: &Value| {
        value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
    };
    value.filter(|value| !script::is_falsy(Some(value)) && !is_empty(value)).cloned()
}

#[cfg(test)]
impl NewVolume {
    /// Returns the volume that tests begin with: `u`, called `n`, of the owner `o`, on the storage VM `v`.
    pub(crate) fn sample() -> NewVolume {
        NewVolume {
            uuid: "u".to_owned(),
            labels: None,
            name: "n".to_owned(),
            owner_uuid: "o".to_owned(),
            size: 10240.0,
            create_timestamp: 1_794_000_000_000,
            refs: Vec::new(),
            networks: vec!["net".to_owned()],
            vm_uuid: "v".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        Volume::new(NewVolume { refs: vec!["a".to_owned()], ..NewVolume::sample() })
    }

    fn keys(volume: &Volume) -> Vec<String> {
        volume.shown().as_object().unwrap().keys().cloned().collect()
    }

    #[test] // V12
    fn fields_are_shown_in_the_order_in_which_they_were_set() {
        let mut volume = volume();
        volume.set_filesystem_path("10.0.0.1:/exports/data");
        let all = ["uuid", "name", "owner_uuid", "size", "type", "create_timestamp", "state"];
        assert_eq!(keys(&volume)[..7], all);
        assert_eq!(keys(&volume)[7..], ["refs", "networks", "vm_uuid", "filesystem_path"]);
        assert_eq!(volume.shown()["create_timestamp"], "2026-11-06T21:20:00.000Z");
        let again: Volume = serde_json::from_str(&serde_json::to_string(&volume).unwrap()).unwrap();
        assert_eq!(keys(&again), keys(&volume));
    }

    #[test] // V13
    fn the_last_reference_takes_the_field_along() {
        let mut volume = volume();
        assert!(!volume.add_ref("a") && volume.add_ref("b"));
        assert!(volume.remove_ref("a") && !volume.remove_ref("x"));
        assert_eq!(volume.refs(), ["b"]);
        assert!(volume.remove_ref("b"));
        assert!(!keys(&volume).contains(&"refs".to_owned()));
    }

    #[test] // V142
    fn the_reason_of_a_failure_goes_with_it_and_deployed_clients_do_not_see_it() {
        let mut volume = volume();
        volume.fail(&Failure::Refused("no\nroom".to_owned()));
        assert_eq!(volume.failure(), Some("VMAPI did not make its storage VM: no\nroom"));
        assert!(!keys(&volume).contains(&"failure".to_owned()));
        let shown = volume.clone().into_explained();
        assert_eq!((&shown["state"], shown["failure"].is_string()), (&json!("failed"), true));
        volume.set_state(State::Ready);
        assert_eq!(volume.failure(), None);
        assert!(volume.into_explained().get("failure").is_none());
    }

    #[test]
    fn a_record_that_is_none_names_its_field() {
        let Value::Object(fields) = serde_json::to_value(volume()).unwrap() else { panic!() };
        for (name, value) in [
            ("state", json!("deleted")),
            ("refs", json!(["a", 1])),
            ("vm_uuid", json!(null)),
            ("snapshots", json!([{"name": "n"}])),
            ("rollback", json!(1)),
        ] {
            let mut fields = fields.clone();
            fields.insert(name.to_owned(), value);
            assert_eq!(Volume::read(fields).unwrap_err(), name);
        }
    }
}
