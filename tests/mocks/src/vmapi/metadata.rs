// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The maps of a VM, its metadata and tags, which jobs change on its node; and its roles, which VMAPI keeps itself.

use serde_json::{Map, Value, json};

use super::errors::{ApiError, element};
use super::handler::Done;
use super::record::as_get;
use super::store::Store;
use crate::restify::{Params, is_uuid};

const MAPS: [&str; 3] = ["customer_metadata", "internal_metadata", "tags"];

impl Store {
    /// Answers a request for one of the maps of a VM, or for its roles: `at` is the VM, the map, and a name in it.
    pub(super) fn of_vm(
        &self,
        method: &str,
        at: (&str, &str, Option<&str>),
        query: &Params,
        given: Params,
    ) -> Result<Done, ApiError> {
        let (uuid, what, name) = at;
        let vm = self.known(uuid, query)?;
        if what == "role_tags" && method != "GET" {
            return self.roles(method, uuid, name, &given);
        }
        if !MAPS.contains(&what) {
            return Err(not_found("Route does not exist"));
        }
        let shown = as_get(&vm);
        let has = shown.get(what).and_then(Value::as_object).cloned().unwrap_or_default();
        let named = || {
            let value = name.and_then(|name| has.get(name)).filter(|it| !crate::restify::falsy(it));
            value.ok_or_else(|| not_found("Metadata key not found"))
        };
        let change = match (method, name) {
            ("GET", None) => return Ok(Done::Json(Value::Object(has))),
            ("GET", Some(_)) => return named().cloned().map(Done::Json),
            ("DELETE", Some(name)) => {
                named()?;
                json!({ format!("remove_{what}"): [name] })
            }
            ("DELETE", None) => {
                json!({ format!("remove_{what}"): has.keys().collect::<Vec<_>>() })
            }
            (verb, _) => {
                let mut set = given;
                set.remove("owner_uuid");
                check(what, &set)?;
                let gone: Vec<String> = match verb {
                    "PUT" => has.keys().filter(|name| !set.contains_key(*name)).cloned().collect(),
                    _ => Vec::new(),
                };
                json!({ format!("set_{what}"): set, format!("remove_{what}"): gone })
            }
        };
        let change = change.as_object().cloned().unwrap_or_else(Map::new);
        match self.peers().refuses_jobs.clone() {
            Some((status, body)) => Err(ApiError::Passed(status, body)),
            None => Ok(Done::Job(uuid.to_owned(), self.start_job("update", uuid, change))),
        }
    }

    fn roles(
        &self,
        method: &str,
        uuid: &str,
        name: Option<&str>,
        given: &Params,
    ) -> Result<Done, ApiError> {
        let mut roles = self.role_tags(uuid);
        match (method, name) {
            ("DELETE", None) => {
                self.set_role_tags(uuid, Vec::new());
                return Ok(Done::Empty);
            }
            ("DELETE", Some(name)) => {
                let at = roles.iter().position(|role| role == name);
                roles.remove(at.ok_or_else(|| not_found("Role Tag not found"))?);
            }
            (verb, _) => {
                let sent = given.get("role_tags").and_then(Value::as_array);
                let sent = sent.filter(|sent| !sent.is_empty());
                let wrong = |message: &str| {
                    ApiError::Invalid("Invalid Role Tags", vec![element("role_tags", message)])
                };
                let sent = sent.ok_or_else(|| wrong("Must be an array of UUIDs"))?;
                let kept = if verb == "PUT" { Vec::new() } else { std::mem::take(&mut roles) };
                roles = kept;
                for role in sent {
                    let text = role.as_str().unwrap_or_default();
                    if !is_uuid(text) {
                        let shown = role.as_str().map_or_else(|| role.to_string(), str::to_owned);
                        return Err(wrong(&format!("{shown} is not a UUID")));
                    }
                    if !roles.iter().any(|own| own == text) {
                        roles.push(text.to_owned());
                    }
                }
            }
        }
        self.set_role_tags(uuid, roles.clone());
        Ok(Done::Json(json!(roles)))
    }
}

/// Values are texts, numbers and booleans; some names a customer cannot have.
fn check(what: &str, set: &Params) -> Result<(), ApiError> {
    for (name, value) in set {
        let why = match value {
            Value::String(_) | Value::Number(_) | Value::Bool(_) => {
                let is_taken = what == "customer_metadata" && name.ends_with("_pw");
                is_taken.then_some("Forbidden Metadata Key")
            }
            _ => Some("Forbidden Data Type"),
        };
        if let Some(why) = why {
            let place = format!("{what}.{name}");
            return Err(ApiError::Invalid("Invalid Parameter", vec![element(&place, why)]));
        }
    }
    Ok(())
}

fn not_found(message: &str) -> ApiError {
    ApiError::Plain(404, "ResourceNotFound", message.to_owned())
}
