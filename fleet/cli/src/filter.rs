// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which VMs are meant: `field=value`, all of them at once. Pure.

use daemon::cli::{Usage, names};
use sdc_clients::fleet::{FleetVm, Mirror};
use sdc_clients::quoted;
use serde_json::Value;

use crate::names::Names;

/// What a VM has to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// On this node.
    pub(crate) node: Option<String>,
    fields: Vec<(String, String)>,
}

/// What has been checked by its value.
const KNOWN: [&str; 2] = ["state", "owner_uuid"];

impl Filter {
    /// Reads `node=NAME`, `owner=UUID`, and `field=value` for any field of a VM; `nics.0.ip` is one inside another.
    pub(crate) fn of(words: &[String], nodes: &Names) -> Result<Filter, Usage> {
        let mut filter = Filter::default();
        for word in words {
            let Some((field, value)) = word.split_once('=') else {
                return Err(Usage(format!("expected FIELD=VALUE, found {}", quoted(word))));
            };
            match field {
                "state" => {
                    names::is_state(value)?;
                    filter.fields.push((field.to_owned(), value.to_owned()));
                }
                "node" => filter.node = Some(nodes.find_node(value)?),
                "owner" | "owner_uuid" => {
                    let owner = uuid::Uuid::try_parse(value)
                        .map_err(|_| Usage(format!("{word}: expected the uuid of an owner")))?;
                    filter.fields.push(("owner_uuid".to_owned(), owner.to_string()));
                }
                _ => filter.fields.push((field.to_owned(), value.to_owned())),
            }
        }
        Ok(filter)
    }

    /// Refuses a field that none of the VMs has; one that is to be absent may be, and what every VM may have.
    pub(crate) fn check(&self, mirror: &Mirror) -> Result<(), Usage> {
        if mirror.vms().next().is_none() {
            return Ok(());
        }
        let named = self
            .fields
            .iter()
            .filter(|(field, value)| !value.is_empty() && !KNOWN.contains(&field.as_str()));
        let mut first = named.map(|(field, _)| field.split('.').next().unwrap_or_default());
        let is_none = |field: &&str| mirror.vms().all(|vm| !vm.object.contains_key(*field));
        match first.find(is_none) {
            Some(field) => Err(Usage(format!("no VM has a field {}", quoted(field)))),
            None => Ok(()),
        }
    }

    /// Returns true if all of it fits.
    pub(crate) fn fits(&self, vm: &FleetVm) -> bool {
        let is_there = self.node.as_ref().is_none_or(|cn| *cn == vm.cn);
        is_there && self.fields.iter().all(|(field, value)| has(vm, field, value))
    }

    /// The subjects of which it may be, for the server to choose. With a `>` they were more than the stream has, and
    /// the server makes no such consumer.
    pub(crate) fn subjects(&self) -> String {
        sdc_clients::fleet::subject(self.node.as_deref().unwrap_or("*"), Some("*"))
    }
}

fn has(vm: &FleetVm, field: &str, value: &str) -> bool {
    let mut parts = field.split('.');
    let first = parts.next().and_then(|part| vm.object.get(part));
    let found = parts.try_fold(first, |found, part| {
        Some(match found? {
            Value::Array(all) => part.parse().ok().and_then(|at: usize| all.get(at)),
            other => other.get(part),
        })
    });
    match found.flatten() {
        Some(Value::String(text)) => text == value,
        Some(Value::Null) | None => value.is_empty(),
        Some(other) => {
            let text = other.to_string();
            text == value
        }
    }
}

#[cfg(test)]
mod tests {
    use sdc_clients::fleet::Position;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_vm_fits_if_every_field_does() {
        let object = json!({"state": "running", "ram": 512, "owner_uuid": "0b0b0b0b-1111-4222-8333-444455556666", "nics": [{"ip": "10.0.0.1"}]});
        let vm = FleetVm {
            cn: "cn".into(),
            uuid: "vm".into(),
            object: object.as_object().unwrap().clone(),
            at: Position { epoch: "e".into(), seq: 1 },
            seq: 1,
        };
        let fits = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
            Filter::of(&words, &Names::default()).unwrap().fits(&vm)
        };
        assert!(
            fits(&[])
                && fits(&["state=running", "ram=512"])
                && fits(&["owner=0B0B0B0B-1111-4222-8333-444455556666"])
        );
        assert!(fits(&["nics.0.ip=10.0.0.1"]) && fits(&["alias="]));
        assert!(!fits(&["state=stopped"]) && !fits(&["state=running", "ram=1"]));
        assert!(!fits(&["nics.1.ip=10.0.0.1"]) && !fits(&["nics.x=1"]));
        let wrong = |word: &str| Filter::of(&[word.into()], &Names::default()).is_err();
        assert!(wrong("state=runing") && wrong("owner=bob"));
        assert!(Filter::of(&["running".into()], &Names::default()).is_err());
        assert!(Filter::of(&["node=nobody".into()], &Names::default()).is_err());
    }
}
