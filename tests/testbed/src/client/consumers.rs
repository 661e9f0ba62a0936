// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The long-lived consumers with all their assertions: the mirror of the metadata agent, vm-agent
//! and net-agent, and the zone events of vmadmd.

use std::collections::BTreeMap;

use serde_json::Value;

use super::thrown::Thrown;

fn assertion(what: &str, event: &Value) -> Thrown {
    Thrown::Assertion(format!("{what}: {event}"))
}

fn zonename(event: &Value) -> Result<String, Thrown> {
    event["zonename"].as_str().map(str::to_owned).ok_or_else(|| assertion("no zonename", event))
}

/// All VMs by zone name, kept from a parsed ready line and events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mirror(pub BTreeMap<String, Value>);

impl Mirror {
    /// What a parsed ready line holds.
    pub fn of(ready: &Value) -> Result<Self, Thrown> {
        let vms = ready["vms"].as_object().ok_or_else(|| assertion("vms is no object", ready))?;
        Ok(Self(vms.iter().map(|(name, vm)| (name.clone(), vm.clone())).collect()))
    }

    /// Takes an event as net-agent and the metadata agent do.
    pub fn take(&mut self, event: &Value) -> Result<(), Thrown> {
        let name = zonename(event)?;
        let known = self.0.contains_key(&name);
        match (event["type"].as_str().unwrap_or_default(), known) {
            ("create", true) => return Err(assertion("create of a known VM", event)),
            ("modify", false) => return Err(assertion("modify of an unknown VM", event)),
            ("create" | "modify", _) => {
                if event["vm"]["uuid"].as_str().is_none_or(|uuid| uuid.len() != 36) {
                    return Err(assertion("vm.uuid is no uuid", event));
                }
                self.0.insert(name, event["vm"].clone());
            }
            ("delete", _) => drop(self.0.remove(&name)),
            _ => return Err(assertion("unknown type", event)),
        }
        if event["type"] == "modify" {
            let list = event["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
            if list.is_empty() {
                return Err(assertion("no changes", event));
            }
            let mut states = list.iter().filter(|one| one["path"] == serde_json::json!(["state"]));
            let first = states.next();
            if states.next().is_some() || first.is_some_and(|one| !one["newValue"].is_string()) {
                return Err(assertion("exactly one state, a text", event));
            }
        }
        Ok(())
    }

    /// What vm-agent finds when it connects again: created, changed, deleted.
    pub fn against(&self, newer: &Mirror) -> (Vec<String>, Vec<String>, Vec<String>) {
        let names = |wanted: &dyn Fn(&String) -> bool, of: &Mirror| {
            of.0.keys().filter(|name| wanted(name)).cloned().collect::<Vec<_>>()
        };
        (
            names(&|name| !self.0.contains_key(name), newer),
            names(&|name| self.0.get(name).is_some_and(|old| *old != newer.0[name]), newer),
            names(&|name| !newer.0.contains_key(name), self),
        )
    }
}

/// One zone event as `zoneevent.js` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneEvent {
    pub zonename: String,
    /// Empty for a new zone.
    pub oldstate: String,
    /// Empty for one that is gone.
    pub newstate: String,
}

/// vmadmd's view: zone states, in the kernel's words.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZoneEvents;

impl ZoneEvents {
    /// The zone event of an event, if it has one.
    pub fn take(self, event: &Value) -> Result<Option<ZoneEvent>, Thrown> {
        let zonename = zonename(event)?;
        let word = |state: &Value| match state.as_str().unwrap_or_default() {
            "installed" => "uninitialized".to_owned(),
            other => other.to_owned(),
        };
        let (oldstate, newstate) = match event["type"].as_str().unwrap_or_default() {
            "create" => (String::new(), word(&event["vm"]["zone_state"])),
            "delete" => (String::new(), String::new()),
            "modify" => {
                let list = event["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
                let path = serde_json::json!(["zone_state"]);
                let Some(one) = list.iter().find(|one| one["path"] == path) else {
                    return Ok(None);
                };
                (word(&one["oldValue"]), word(&one["newValue"]))
            }
            _ => return Err(assertion("unknown type", event)),
        };
        Ok(Some(ZoneEvent { zonename, oldstate, newstate }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mirror_is_as_strict_as_the_agents() {
        let vm = json!({"uuid": "7992e853-8812-4060-8b15-fff23517df24"});
        let create = json!({"type": "create", "zonename": "z", "vm": vm});
        let mut mirror = Mirror::default();
        mirror.take(&create).unwrap();
        assert!(mirror.take(&create).is_err(), "a second create");
        let state = |n| vec![json!({"path": ["state"], "newValue": "running"}); n];
        let modify =
            |changes| json!({"type": "modify", "zonename": "z", "vm": vm, "changes": changes});
        mirror.take(&modify(state(1))).unwrap();
        assert!(mirror.take(&modify(state(2))).is_err() && mirror.take(&modify(vec![])).is_err());
        assert!(mirror.take(&json!({"type": "ping", "zonename": "z"})).is_err());
        mirror.take(&json!({"type": "delete", "zonename": "z"})).unwrap();
        assert!(mirror.take(&modify(state(1))).is_err(), "a modify of what is gone");
    }
}
