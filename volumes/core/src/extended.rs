// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters that only RFD 26 gives creates and updates. They are taken out and checked here; the rest is
//! the deployed service's.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::checks::{self, Causes, Params, optional, text, uuids};
use super::package;
use super::refused::{Cause, Refused};
use super::requests::{self, Create, CreateExtra, Update};

/// Splits parameters: those of these names, and the rest.
fn split(params: &Params, names: &[&str]) -> (Params, Params) {
    let (own, rest): (Vec<_>, Vec<_>) =
        params.clone().into_iter().partition(|(name, _)| names.contains(&name.as_str()));
    (own.into_iter().collect(), rest.into_iter().collect())
}

/// Returns what was checked, or all that is wrong: of the rest first.
fn both<T>(checked: Result<T, Refused>, causes: Causes) -> Result<T, Refused> {
    match (checked, causes.done()) {
        (Ok(checked), Ok(())) => Ok(checked),
        (Err(Refused::Invalid(rest)), Err(Refused::Invalid(own))) => {
            Err(Refused::Invalid(rest.into_iter().chain(own).collect::<Vec<Cause>>()))
        }
        (Err(refused), _) | (_, Err(refused)) => Err(refused),
    }
}

/// Checks the parameters of `POST /volumes`: also `package`, `server_uuid`, `ip_address`, and `tags`, another
/// name of `labels`.
pub fn create(params: &Params) -> Result<Create, Refused> {
    let (mut own, mut rest) = split(params, &["package", "server_uuid", "ip_address", "tags"]);
    let mut causes = Causes::default();
    optional(&mut causes, &own, "package", package::reference);
    uuids(&mut causes, &own, &[("server_uuid", "server_uuid")]);
    let address = text(&own, "ip_address").and_then(|text| text.parse::<Ipv4Addr>().ok());
    if own.contains_key("ip_address") && address.is_none() {
        causes.add("ip_address must be an IPv4 address");
    }
    if own.contains_key("tags") {
        causes.check(checks::tags(own.get("tags")));
        if rest.contains_key("labels") {
            causes.add("labels and tags are the same: only one of them can be given");
        } else if let Some(tags) = own.shift_remove("tags").filter(Value::is_object) {
            rest.insert("labels".to_owned(), tags);
        }
    }
    let created = both(requests::create(&rest), causes)?;
    let package = text(&own, "package");
    let server_uuid = text(&own, "server_uuid");
    Ok(Create { extra: CreateExtra { package, server_uuid, ip_address: address }, ..created })
}

/// Checks the parameters of `POST /volumes/:uuid`: also `tags`.
pub fn update(params: &Params) -> Result<Update, Refused> {
    let (own, rest) = split(params, &["tags"]);
    let mut causes = Causes::default();
    optional(&mut causes, &own, "tags", checks::tags);
    let updated = both(requests::update(&rest), causes)?;
    Ok(Update { tags: own.get("tags").and_then(Value::as_object).cloned(), ..updated })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const U: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

    fn with(added: Value) -> Params {
        let all = json!({"owner_uuid": U, "type": "tritonnfs", "networks": [U]});
        let mut params = all.as_object().cloned().unwrap();
        params.extend(added.as_object().cloned().unwrap());
        params
    }

    #[test] // V103 V117 V118
    fn a_create_takes_a_package_a_node_an_address_and_tags() {
        let all = json!({"package": "nfs1-10g", "server_uuid": U, "ip_address": "10.0.0.7",
            "tags": {"a": "b"}});
        let created = create(&with(all)).unwrap();
        assert_eq!(created.labels, Some(json!({"a": "b"})));
        let extra = created.extra;
        assert_eq!(extra.package.as_deref(), Some("nfs1-10g"));
        assert_eq!(extra.server_uuid.as_deref(), Some(U));
        assert_eq!(extra.ip_address, Some(Ipv4Addr::new(10, 0, 0, 7)));
        for bad in [
            json!({"package": "Nope"}),
            json!({"package": 1}),
            json!({"package": ""}),
            json!({"server_uuid": "x"}),
            json!({"ip_address": "10.0.0.256"}),
            json!({"ip_address": "fd00::1"}),
            json!({"tags": ["a"]}),
            json!({"tags": {"a": 1}}),
            json!({"tags": null}),
            json!({"tags": {}, "labels": {}}),
        ] {
            assert!(create(&with(bad.clone())).is_err(), "{bad}");
        }
    }

    #[test] // V1
    fn what_is_wrong_with_both_kinds_of_parameters_is_told_at_once() {
        let both = json!({"server_uuid": "x", "name": "", "foo": 1});
        let said = create(&with(both)).unwrap_err().to_string();
        for part in ["invalid parameter: foo", "volume name", "server_uuid"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test] // V119
    fn an_update_takes_tags() {
        let of = |params: Value| update(params.as_object().unwrap());
        assert_eq!(of(json!({"uuid": U, "tags": {"a": "b"}})).unwrap().tags.unwrap()["a"], "b");
        assert!(of(json!({"uuid": U})).unwrap().tags.is_none());
        assert!(of(json!({"uuid": U, "tags": "a=b"})).is_err());
        assert!(requests::update(json!({"uuid": U, "tags": {}}).as_object().unwrap()).is_err());
    }
}
