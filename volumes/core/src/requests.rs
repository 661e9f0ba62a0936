// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of each route, checked: every fault at once, in the order in which the deployed service
//! tells them.

use std::net::Ipv4Addr;

use serde_json::{Map, Value};

pub use super::checks::Params;
use super::checks::{self, Causes, given, optional, text, uuids};
use super::refused::Refused;
use super::volume::labels_of;

/// `POST /volumes`.
#[derive(Clone, Debug)]
pub struct Create {
    pub uuid: Option<String>,
    pub owner_uuid: String,
    pub name: Option<String>,
    /// In MiB.
    pub size: Option<f64>,
    pub networks: Vec<String>,
    /// Affinity rules, passed on to VMAPI.
    pub affinity: Option<Value>,
    pub labels: Option<Value>,
    pub extra: CreateExtra,
}

/// The parameters that only RFD 26 gives `POST /volumes`.
#[derive(Clone, Debug, Default)]
pub struct CreateExtra {
    /// The uuid or the name of a volume package.
    pub package: Option<String>,
    pub server_uuid: Option<String>,
    pub ip_address: Option<Ipv4Addr>,
}

/// `POST /volumes/:uuid`.
#[derive(Clone, Debug)]
pub struct Update {
    pub uuid: String,
    pub owner_uuid: Option<String>,
    pub name: Option<String>,
    /// Those that take the place of all others; only RFD 26 has it.
    pub tags: Option<Map<String, Value>>,
}

/// `GET /volumes/:uuid` and `DELETE /volumes/:uuid`.
#[derive(Clone, Debug)]
pub struct One {
    pub uuid: String,
    pub owner_uuid: Option<String>,
    /// Only for a delete.
    pub force: bool,
}

/// `POST /volumes/:uuid/addreference` and `removereference`.
#[derive(Clone, Debug)]
pub struct Reference {
    pub uuid: String,
    pub owner_uuid: String,
    pub vm_uuid: String,
}

/// `POST /volumereservations`.
#[derive(Clone, Debug)]
pub struct Reserve {
    pub job_uuid: String,
    pub owner_uuid: String,
    pub volume_name: String,
    pub vm_uuid: String,
}

/// `GET /volumereservations`: the fields that must have these values.
pub type ReservationFilter = Vec<(&'static str, String)>;

/// Routes without parameters.
pub fn none(params: &Params) -> Result<(), Refused> {
    let mut causes = Causes::default();
    causes.names(params, &[], &[]);
    causes.done()
}

/// `GET /volumesizes`.
pub fn sizes(params: &Params) -> Result<(), Refused> {
    let mut causes = Causes::default();
    causes.names(params, &[], &["type"]);
    if params.get("type").is_some_and(|kind| kind != "") {
        causes.check(checks::kind(params.get("type")));
    }
    causes.done()
}

/// `POST /volumes`.
pub fn create(params: &Params) -> Result<Create, Refused> {
    let mut causes = Causes::default();
    let optionals = ["uuid", "size", "name", "affinity", "labels"];
    causes.names(params, &["owner_uuid", "type", "networks"], &optionals);
    causes.check(checks::uuid(params.get("owner_uuid"), "owner_uuid"));
    uuids(&mut causes, params, &[("uuid", "uuid")]);
    optional(&mut causes, params, "size", checks::size);
    optional(&mut causes, params, "name", checks::name);
    causes.check(checks::kind(params.get("type")));
    if let Some(labels) = params.get("labels") {
        causes.check(checks::labels(labels));
    }
    checks::networks(params.get("networks")).into_iter().for_each(|text| causes.add(text));
    let affinity = params.get("affinity").filter(|value| !value.is_null());
    let is_rule = |rule: &Value| rule.is_string() || rule.is_object();
    let is_rules = |value: &Value| value.as_array().is_some_and(|rules| rules.iter().all(is_rule));
    if affinity.is_some_and(|value| !is_rules(value)) {
        causes.add("affinity must be an array of rules");
    }
    causes.done()?;
    let networks = params.get("networks").and_then(Value::as_array).into_iter().flatten();
    Ok(Create {
        uuid: text(params, "uuid"),
        owner_uuid: given(params, "owner_uuid"),
        name: text(params, "name"),
        size: params.get("size").and_then(Value::as_f64),
        networks: networks.filter_map(Value::as_str).map(str::to_owned).collect(),
        affinity: affinity.cloned(),
        labels: labels_of(params.get("labels")),
        extra: CreateExtra::default(),
    })
}

/// `POST /volumes/:uuid`.
pub fn update(params: &Params) -> Result<Update, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid"], &["owner_uuid", "name"]);
    uuids(&mut causes, params, &[("uuid", "uuid")]);
    // A null is an owner that no volume has.
    let is_nobody = params.get("owner_uuid").is_some_and(Value::is_null);
    if !is_nobody {
        uuids(&mut causes, params, &[("owner_uuid", "owner_uuid")]);
    }
    optional(&mut causes, params, "name", checks::name);
    causes.done()?;
    let owner_uuid = text(params, "owner_uuid").or(is_nobody.then(String::new));
    let name = text(params, "name");
    Ok(Update { uuid: given(params, "uuid"), owner_uuid, name, tags: None })
}

/// `GET /volumes/:uuid`.
pub fn get(params: &Params) -> Result<One, Refused> {
    one(params, &["owner_uuid"])
}

/// `DELETE /volumes/:uuid`.
pub fn delete(params: &Params) -> Result<One, Refused> {
    one(params, &["owner_uuid", "force"])
}

fn one(params: &Params, optionals: &[&str]) -> Result<One, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid"], optionals);
    uuids(&mut causes, params, &[("uuid", "uuid")]);
    if optionals.contains(&"owner_uuid") {
        uuids(&mut causes, params, &[("owner_uuid", "owner_uuid")]);
    }
    if let Some(force) = params.get("force").filter(|_| optionals.contains(&"force"))
        && force != "true"
        && force != "false"
    {
        let force = super::script::string(Some(force));
        causes.add(format!("{force} is not a valid boolean string value for force."));
    }
    causes.done()?;
    let force = params.get("force").is_some_and(|force| force == "true");
    Ok(One { uuid: given(params, "uuid"), owner_uuid: text(params, "owner_uuid"), force })
}

/// `GET /volumes/:uuid/references`.
pub fn references(params: &Params) -> Result<String, Refused> {
    one(params, &[]).map(|one| one.uuid)
}

/// `POST /volumes/:uuid/addreference` and `removereference`.
pub fn reference(params: &Params) -> Result<Reference, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid", "owner_uuid", "vm_uuid"], &[]);
    let names = [("uuid", "uuid"), ("owner_uuid", "owner_uuid"), ("vm_uuid", "vm_uuid")];
    uuids(&mut causes, params, &names);
    causes.done()?;
    let [uuid, owner_uuid, vm_uuid] =
        ["uuid", "owner_uuid", "vm_uuid"].map(|name| given(params, name));
    Ok(Reference { uuid, owner_uuid, vm_uuid })
}

/// `POST /volumereservations`.
pub fn reserve(params: &Params) -> Result<Reserve, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["job_uuid", "owner_uuid", "volume_name", "vm_uuid"], &[]);
    uuids(&mut causes, params, &[("owner_uuid", "owner")]);
    optional(&mut causes, params, "volume_name", checks::name);
    uuids(&mut causes, params, &[("vm_uuid", "VM"), ("job_uuid", "job")]);
    causes.done()?;
    let [job_uuid, owner_uuid, volume_name, vm_uuid] =
        ["job_uuid", "owner_uuid", "volume_name", "vm_uuid"].map(|name| given(params, name));
    Ok(Reserve { job_uuid, owner_uuid, volume_name, vm_uuid })
}

/// `DELETE /volumereservations/:uuid`: the reservation and its owner.
pub fn release(params: &Params) -> Result<(String, String), Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid", "owner_uuid"], &[]);
    uuids(&mut causes, params, &[("uuid", "uuid"), ("owner_uuid", "owner")]);
    causes.done()?;
    Ok((given(params, "uuid"), given(params, "owner_uuid")))
}

/// `GET /volumereservations`.
pub fn reservations(params: &Params) -> Result<ReservationFilter, Refused> {
    const NAMES: [&str; 4] = ["owner_uuid", "volume_name", "vm_uuid", "job_uuid"];
    let mut causes = Causes::default();
    causes.names(params, &[], &NAMES);
    for name in NAMES {
        match name {
            // An empty name finds nothing.
            "volume_name" if params.get(name).is_some_and(|value| value == "") => {}
            "volume_name" => optional(&mut causes, params, name, checks::name),
            _ => uuids(&mut causes, params, &[(name, name)]),
        }
    }
    causes.done()?;
    Ok(NAMES.into_iter().filter_map(|name| Some((name, text(params, name)?))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(value: Value) -> Params {
        value.as_object().cloned().unwrap()
    }

    const U: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

    #[test] // V1
    fn every_route_names_missing_unknown_and_bad_parameters() {
        let upper = U.to_uppercase();
        let refusal = |refused: Option<Refused>| refused.map(|refused| refused.to_string());
        type Check = (&'static str, fn(&Params) -> Option<Refused>, &'static [&'static str]);
        let checks: [Check; 8] = [
            ("create", |p| create(p).err(), &["owner_uuid", "type", "networks"]),
            ("update", |p| update(p).err(), &["uuid"]),
            ("get", |p| get(p).err(), &["uuid"]),
            ("delete", |p| delete(p).err(), &["uuid"]),
            ("references", |p| references(p).err(), &["uuid"]),
            ("reference", |p| reference(p).err(), &["uuid", "owner_uuid", "vm_uuid"]),
            (
                "reserve",
                |p| reserve(p).err(),
                &["job_uuid", "owner_uuid", "volume_name", "vm_uuid"],
            ),
            ("release", |p| release(p).err(), &["uuid", "owner_uuid"]),
        ];
        for (route, check, required) in checks {
            let said = refusal(check(&Params::new())).unwrap();
            for name in required {
                assert!(said.contains(&format!("missing mandatory parameter: {name}")), "{route}");
            }
            let said = refusal(check(&params(json!({"foo": 1})))).unwrap();
            assert!(said.contains("invalid parameter: foo"), "{route}: {said}");
            for name in required.iter().filter(|name| name.ends_with("uuid")) {
                for bad in [json!("x"), json!(7), json!(null), json!(upper), json!("")] {
                    let said = refusal(check(&params(json!({*name: bad})))).unwrap();
                    assert!(said.contains("is not a valid"), "{route} {name} {bad}: {said}");
                }
            }
        }
        assert!(none(&params(json!({"a": "b"}))).is_err() && none(&Params::new()).is_ok());
    }

    #[test] // V1
    fn a_null_owner_of_an_update_is_another_owner() {
        let update = update(&params(json!({"uuid": U, "owner_uuid": null}))).unwrap();
        assert_eq!(update.owner_uuid.as_deref(), Some(""), "no volume is of this one");
    }

    #[test] // V2
    fn affinity_is_a_list_of_objects_or_texts() {
        let of = |affinity: Value| {
            let all = json!({"owner_uuid": U, "type": "tritonnfs", "networks": [U], "affinity": affinity});
            create(&params(all))
        };
        assert!(of(json!(["instance!=a*"])).is_ok() && of(json!([])).is_ok());
        assert!(of(json!([{"key": "role"}])).is_ok(), "what is in it is read where it is sent");
        assert!(of(json!("x")).is_err() && of(json!([1])).is_err() && of(json!({})).is_err());
    }

    #[test] // V3
    fn repeated_keys_are_refused() {
        for name in ["owner_uuid", "volume_name", "vm_uuid", "job_uuid"] {
            assert!(reservations(&params(json!({name: ["ab", "ab"]}))).is_err(), "{name}");
        }
    }
}
