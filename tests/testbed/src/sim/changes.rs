// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! V3: an old object and its change records make the new object. Pure, and independent of vminfod's
//! own diff.

use std::collections::HashMap;

use sdc_clients::vminfod::{Action, Change};
use serde_json::{Map, Value};

/// The objects that a listener was told.
#[derive(Debug, Default)]
pub struct Objects(HashMap<String, Value>);

impl Objects {
    /// Takes a line of the stream.
    pub fn take(&mut self, line: &Value) -> Result<(), String> {
        let name = line["zonename"].as_str().unwrap_or_default().to_owned();
        match line["type"].as_str().unwrap_or_default() {
            "ready" => {
                let vms: Vec<Value> =
                    serde_json::from_str(line["vms"].as_str().unwrap_or_default())
                        .map_err(|e| format!("ready.vms: {e}"))?;
                let named =
                    |vm: Value| Some((vm.get("zonename")?.as_str()?.to_owned(), vm.clone()));
                self.0 = vms.into_iter().filter_map(named).collect();
            }
            "create" => {
                self.0.insert(name, line["vm"].clone());
            }
            "delete" => {
                self.0.remove(&name);
            }
            "modify" => {
                let changes: Vec<Change> = serde_json::from_value(line["changes"].clone())
                    .map_err(|e| format!("changes of {name}: {e}"))?;
                let mut vm = self.0.insert(name.clone(), line["vm"].clone()).unwrap_or_default();
                for change in &changes {
                    apply(&mut vm, &change.path, change)
                        .ok_or_else(|| format!("{name}: {} leads nowhere", change.pretty_path))?;
                }
                if settled(&vm) != settled(&line["vm"]) {
                    let paths: Vec<&str> = changes.iter().map(|c| c.pretty_path.as_str()).collect();
                    return Err(format!("{name}: the changes {paths:?} do not make the object"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Does to `at` what the change says of what is below it.
fn apply(at: &mut Value, path: &[Option<String>], change: &Change) -> Option<()> {
    match path {
        [Some(key)] => {
            let object = fields(at)?;
            match change.action {
                Action::Removed => object.remove(key).map(drop),
                Action::Added | Action::Changed => {
                    object.insert(key.clone(), change.new_value.clone()?);
                    Some(())
                }
            }
        }
        [None] => {
            let items = at.as_array_mut()?;
            if let Some(old) = &change.old_value {
                let found = items.iter().position(|item| item == old)?;
                items.remove(found);
            }
            items.extend(change.new_value.clone());
            Some(())
        }
        [Some(key), rest @ ..] => apply(fields(at)?.get_mut(key)?, rest, change),
        [None, rest @ ..] => {
            let ident = change.ident.as_ref()?;
            let of = |item: &&mut Value| {
                item.as_object().is_some_and(|item| item.values().any(|value| value == ident))
            };
            apply(at.as_array_mut()?.iter_mut().find(of)?, rest, change)
        }
        [] => None,
    }
}

fn fields(at: &mut Value) -> Option<&mut Map<String, Value>> {
    at.as_object_mut()
}

/// The order of an array's elements is no change.
fn settled(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(settled).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.iter().map(|(key, value)| (key.clone(), settled(value))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(fields.into_iter().collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A line about a VM that was told before, with the changes that vminfod finds.
    fn told(old: &Value, new: &Value, edit: impl Fn(&mut Vec<Value>)) -> Result<(), String> {
        let mut objects = Objects::default();
        objects.take(&json!({"type": "create", "zonename": "z", "vm": old})).unwrap();
        let found = vm_model::diff::diff(old.as_object().unwrap(), new.as_object().unwrap());
        let found = serde_json::to_value(found).unwrap();
        let mut changes = found.as_array().unwrap().clone();
        edit(&mut changes);
        objects.take(&json!({"type": "modify", "zonename": "z", "vm": new, "changes": changes}))
    }

    #[test]
    fn changes_lead_from_the_old_object_to_the_new_and_a_missing_one_is_noticed() {
        let old = json!({"zonename": "z", "ram": 1, "tags": {"a": 1, "b": null}, "gone": 2,
            "resolvers": ["1", "2"], "nics": [{"mac": "m1", "ip": "x"}, {"mac": "m2", "ip": "y"}]});
        let new = json!({"zonename": "z", "ram": 2, "tags": {"b": {"c": 1}}, "come": 3,
            "resolvers": ["2", "3"], "nics": [{"mac": "m2", "ip": "z"}, {"mac": "m3", "ip": "x"}]});
        told(&old, &new, |_| ()).unwrap();
        let count = vm_model::diff::diff(old.as_object().unwrap(), new.as_object().unwrap()).len();
        assert_eq!(count, 10, "one of each kind, or more");
        for left_out in 0..count {
            let result = told(&old, &new, |changes| {
                changes.remove(left_out);
            });
            assert!(result.is_err(), "nobody missed change {left_out}");
        }
    }
}
