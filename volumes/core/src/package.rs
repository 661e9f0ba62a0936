// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Volume packages (RFD 26 §Introduction of volume packages): bucket `volapi_volume_packages`, key its name,
//! which therefore no other has. A package is never deleted, only deactivated.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::checks::{self, Causes, Params, given, optional, text, uuids};
use super::refused::Refused;
use super::script::show_time_of;
use super::volume::TYPE;
use vm_model::parse::text::is_lower_uuid;

/// MiB in a GiB: sizes are MiB on the wire and GiB in names.
const GIB: u64 = 1024;
/// The longest name and description, in bytes.
const NAME: usize = 128;
const DESCRIPTION: usize = 4096;
/// The users of one package.
const OWNERS: usize = 1000;

/// A volume package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub uuid: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// In MiB.
    pub size: u64,
    /// The package of PAPI that the storage VM gets.
    pub compute_package_uuid: String,
    pub description: String,
    /// The owners that may use it; all if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_uuids: Vec<String>,
    pub active: bool,
    /// In milliseconds since 1970.
    pub created_at: i64,
}

impl Package {
    /// Returns true if this user may list, get and use it; without a user, for the operator.
    pub fn is_for(&self, owner: Option<&str>) -> bool {
        let is_among = |owner: &str| {
            self.owner_uuids.is_empty() || self.owner_uuids.iter().any(|it| it == owner)
        };
        owner.is_none_or(|owner| self.active && is_among(owner))
    }

    /// Returns it as clients see it.
    pub fn shown(&self) -> Value {
        let mut shown = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        show_time_of(&mut shown, "created_at");
        shown.into()
    }
}

/// `POST /volumepackages`.
#[derive(Clone, Debug)]
pub struct NewPackage {
    pub name: String,
    /// In MiB.
    pub size: u64,
    pub compute_package_uuid: String,
    pub description: String,
    pub owner_uuids: Vec<String>,
    pub active: bool,
}

impl NewPackage {
    /// Returns the record.
    pub fn made(&self, uuid: String, created_at: i64) -> Package {
        Package {
            uuid,
            name: self.name.clone(),
            kind: TYPE.to_owned(),
            size: self.size,
            compute_package_uuid: self.compute_package_uuid.clone(),
            description: self.description.clone(),
            owner_uuids: self.owner_uuids.clone(),
            active: self.active,
            created_at,
        }
    }
}

/// `GET /volumepackages/:uuid`, where a name does for the uuid, and `GET /volumepackages`.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub package: String,
    pub owner_uuid: Option<String>,
}

/// Checks the parameters of `POST /volumepackages`.
pub fn create(params: &Params) -> Result<NewPackage, Refused> {
    let required = ["type", "size", "compute_package_uuid", "description", "active"];
    let mut causes = Causes::default();
    causes.names(params, &required, &["name", "owner_uuids"]);
    optional(&mut causes, params, "type", checks::kind);
    let size =
        params.get("size").and_then(Value::as_u64).filter(|size| *size > 0 && size % GIB == 0);
    if size.is_none() && params.contains_key("size") {
        causes.add(format!("size must be a number of MiB, and whole GiB: a multiple of {GIB}"));
    }
    uuids(&mut causes, params, &[("compute_package_uuid", "compute_package_uuid")]);
    optional(&mut causes, params, "description", |value| match value.and_then(Value::as_str) {
        Some(text) if !text.is_empty() && text.len() <= DESCRIPTION => Ok(()),
        _ => Err(format!("description must be a string of 1 to {DESCRIPTION} bytes")),
    });
    activity(&mut causes, params);
    optional(&mut causes, params, "owner_uuids", owners);
    if let (Some(value), Some(size)) = (params.get("name"), size) {
        causes.check(name(value, size));
    }
    causes.done()?;
    let size = size.unwrap_or_default();
    let owners = params.get("owner_uuids").and_then(Value::as_array).into_iter().flatten();
    Ok(NewPackage {
        name: text(params, "name").unwrap_or_else(|| usual_name(size)),
        size,
        compute_package_uuid: given(params, "compute_package_uuid"),
        description: given(params, "description"),
        owner_uuids: owners.filter_map(Value::as_str).map(str::to_owned).collect(),
        active: params.get("active") == Some(&Value::Bool(true)),
    })
}

/// Checks the parameters of `POST /volumepackages/:uuid`: the package, and whether it is active from now on.
pub fn update(params: &Params) -> Result<(String, bool), Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid", "active"], &[]);
    optional(&mut causes, params, "uuid", reference);
    activity(&mut causes, params);
    causes.done()?;
    Ok((given(params, "uuid"), params.get("active") == Some(&Value::Bool(true))))
}

/// Checks the parameters of `GET /volumepackages/:uuid`.
pub fn get(params: &Params) -> Result<Wanted, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid"], &["owner_uuid"]);
    optional(&mut causes, params, "uuid", reference);
    uuids(&mut causes, params, &[("owner_uuid", "owner_uuid")]);
    causes.done()?;
    Ok(Wanted { package: given(params, "uuid"), owner_uuid: text(params, "owner_uuid") })
}

/// Checks the parameters of `GET /volumepackages`; returns the user who asks.
pub fn list(params: &Params) -> Result<Option<String>, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &[], &["type", "owner_uuid"]);
    optional(&mut causes, params, "type", checks::kind);
    uuids(&mut causes, params, &[("owner_uuid", "owner_uuid")]);
    causes.done()?;
    Ok(text(params, "owner_uuid"))
}

/// A package as requests name it: its uuid or its name.
pub(super) fn reference(value: Option<&Value>) -> Result<(), String> {
    match value.and_then(Value::as_str) {
        Some(text) if is_lower_uuid(text) || is_name(text) => Ok(()),
        _ => Err("package must be the uuid or the name of a volume package".to_owned()),
    }
}

fn activity(causes: &mut Causes, params: &Params) {
    if params.get("active").is_some_and(|active| !active.is_boolean()) {
        causes.add("active must be true or false");
    }
}

fn owners(value: Option<&Value>) -> Result<(), String> {
    match value {
        Some(Value::Array(owners)) if owners.len() <= OWNERS => {
            owners.iter().try_for_each(|owner| checks::uuid(Some(owner), "owner_uuids"))
        }
        _ => Err(format!("owner_uuids must be an array of at most {OWNERS} UUIDs")),
    }
}

/// Returns true for a name of the form `TYPE GENERATION - PROPERTY - PROPERTY...`, as `nfs1-10g`
/// (RFD 26 §Naming conventions).
fn is_name(text: &str) -> bool {
    let is_fit = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let (first, rest) = text.split_once('-').unwrap_or((text, ""));
    let kind = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_kind = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase());
    is_kind && kind.len() < first.len() && text.len() <= NAME && rest.split('-').all(is_fit)
}

fn name(value: &Value, size: u64) -> Result<(), String> {
    let Some(text) = value.as_str().filter(|text| is_name(text)) else {
        return Err("the name of a volume package is of the form nfs1-10g".to_owned());
    };
    let last = text.rsplit('-').next().unwrap_or_default();
    let gib = last.strip_suffix('g').and_then(|number| number.parse::<u64>().ok());
    match gib {
        Some(gib) if gib.checked_mul(GIB) != Some(size) => {
            Err(format!("{text} says {gib} GiB, and the size is {} GiB", size / GIB))
        }
        _ => Ok(()),
    }
}

fn usual_name(size: u64) -> String {
    format!("nfs1-{}g", size / GIB)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const U: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

    fn with(changes: Value) -> Params {
        let all = json!({"type": "tritonnfs", "size": 10240, "compute_package_uuid": U,
            "description": "10 GiB", "active": true});
        let mut params = all.as_object().cloned().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(params.shift_remove(name)),
                value => drop(params.insert(name.clone(), value.clone())),
            }
        }
        params
    }

    #[test] // V100
    fn a_new_package_has_every_field_that_the_rfd_requires() {
        assert_eq!(create(&with(json!({}))).unwrap().name, "nfs1-10g");
        for name in ["type", "size", "compute_package_uuid", "description", "active"] {
            let said = create(&with(json!({name: null}))).unwrap_err().to_string();
            assert!(said.contains(&format!("missing mandatory parameter: {name}")), "{said}");
        }
        for (bad, word) in [
            (json!({"type": "foo"}), "type"),
            (json!({"size": 10}), "GiB"),
            (json!({"size": 0}), "GiB"),
            (json!({"size": "10240"}), "GiB"),
            (json!({"size": 10240.5}), "GiB"),
            (json!({"compute_package_uuid": "x"}), "compute_package_uuid"),
            (json!({"description": ""}), "description"),
            (json!({"description": "d".repeat(4097)}), "description"),
            (json!({"active": "true"}), "active"),
            (json!({"owner_uuids": U}), "owner_uuids"),
            (json!({"owner_uuids": [U, "x"]}), "owner_uuids"),
            (json!({"name": "nfs1-20g"}), "20 GiB"),
            (json!({"foo": 1}), "invalid parameter: foo"),
        ] {
            let said = create(&with(bad.clone())).unwrap_err().to_string();
            assert!(said.contains(word), "{bad}: {said}");
        }
    }

    #[test] // V101
    fn names_have_type_generation_and_properties_and_none_is_a_uuid() {
        for name in ["nfs1-10g", "nfs4-ssd-10g", "nfs12-a-b-c"] {
            assert!(is_name(name), "{name}");
        }
        let long = format!("nfs1-{}", "a".repeat(124));
        for name in
            ["", "nfs", "nfs1", "nfs1-", "1-10g", "NFS1-10g", "nfs1-10g*", "nfs1-10 g", &long, U]
        {
            assert!(!is_name(name), "{name}");
        }
        assert!(update(&with(json!({"uuid": "nope"}))).is_err());
        let update_of =
            |uuid: &str| update(json!({"uuid": uuid, "active": false}).as_object().unwrap());
        assert_eq!(update_of("nfs1-10g").unwrap(), ("nfs1-10g".to_owned(), false));
        assert_eq!(update_of(U).unwrap(), (U.to_owned(), false));
    }

    #[test] // V102
    fn users_see_active_packages_that_are_everybodys_or_their_own() {
        let made = |owners: Value, active: bool| {
            let new = create(&with(json!({"owner_uuids": owners, "active": active}))).unwrap();
            new.made("u".to_owned(), 0)
        };
        let other = "99999999-9999-4999-8999-999999999999";
        for (package, is_own, is_others) in [
            (made(json!([]), true), true, true),
            (made(json!([U]), true), true, false),
            (made(json!([U]), false), false, false),
        ] {
            assert_eq!((package.is_for(Some(U)), package.is_for(Some(other))), (is_own, is_others));
            assert!(package.is_for(None), "the operator sees all");
        }
        let shown = made(json!([]), true).shown();
        assert_eq!(shown["created_at"], "1970-01-01T00:00:00.000Z");
        assert!(shown.get("owner_uuids").is_none());
    }

    proptest! {
        #[test] // V101
        fn the_usual_name_of_a_size_is_a_name_of_that_size(gib in 1..1_000_000u64) {
            let size = gib * GIB;
            prop_assert_eq!(name(&json!(usual_name(size)), size), Ok(()));
            prop_assert!(name(&json!(usual_name(size)), size + GIB).is_err());
        }
    }
}
