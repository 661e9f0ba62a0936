// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state a VM is shown in: zoneadm's word, overruled by what vmadm wrote into the configuration.

use serde_json::Value;

use super::convert::{bool_value, is_space, number_value};
use super::draft::Draft;
use super::set;
use crate::load::{PackedXml, ZoneRow};

/// The three words of a transition, `FROM:TO:EXPIRES`; anything else is none.
fn words(transition: &str) -> Option<[&str; 3]> {
    let words: Vec<&str> = transition.trim_end_matches(is_space).split(':').collect();
    <[&str; 3]>::try_from(words).ok()
}

/// Takes the attr apart. What is no transition stays as it is; nobody looks at the clock.
pub(super) fn split_transition(vm: &mut Draft) {
    let Some(text) = vm.text("transition").map(str::to_owned) else {
        return;
    };
    let Some([state, to, expire]) = words(&text) else {
        return;
    };
    drop(vm.remove("transition"));
    set(vm, "state", state);
    set(vm, "transition_to", to);
    set(vm, "transition_expire", number_value(Some(expire)));
}

/// The state of the object so far.
pub(super) fn from_object(vm: &Draft, zone_state: &str) -> String {
    decide(
        vm.text("state"),
        vm.plain("provisioning") == Some(&Value::Bool(true)),
        vm.text("failed"),
        zone_state,
    )
}

/// The state before the object is made: tells whether the receiving file has to be read.
pub fn state_of(row: &ZoneRow, xml: &PackedXml) -> String {
    let [provisioning, transition, failed] =
        ["provisioning", "transition", "failed"].map(|name| xml.attr(name));
    let provisioning = provisioning.is_some_and(|text| bool_value(&text) == Value::Bool(true));
    let transition = transition.as_deref().and_then(words);
    let transition = transition.map(|[state, ..]| state);
    decide(transition, provisioning, failed.as_deref(), &row.zone_state)
}

fn decide(
    transition: Option<&str>,
    provisioning: bool,
    failed: Option<&str>,
    zone_state: &str,
) -> String {
    let state = match (transition, zone_state) {
        (Some(state), _) => state,
        (None, "installed") => "stopped",
        (None, word) => word,
    };
    if failed.is_some_and(|text| !text.is_empty()) {
        "failed".to_owned()
    } else if state == "stopped" && provisioning {
        "provisioning".to_owned()
    } else {
        state.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::draft::Field;
    use serde_json::json;

    #[test]
    fn states() {
        // transition, provisioning, failed, zone_state → state
        let table = [
            (None, true, None, "installed", "provisioning"),
            (None, true, None, "configured", "configured"),
            (Some("provisioning"), true, None, "running", "provisioning"),
            (Some("stopping"), false, None, "shutting_down", "stopping"),
            (Some("receiving"), false, None, "incomplete", "receiving"),
            (Some("stopped"), true, None, "running", "provisioning"),
            (None, false, Some("provisioning"), "running", "failed"),
            (Some("receiving"), false, Some("false"), "running", "failed"),
            (None, false, Some(""), "installed", "stopped"),
            (None, false, None, "down", "down"),
        ];
        for (transition, provisioning, failed, zone_state, state) in table {
            assert_eq!(decide(transition, provisioning, failed, zone_state), state, "{zone_state}");
        }
    }

    #[test]
    fn transitions() {
        let split = |text: &str| {
            let mut vm = Draft::default();
            set(&mut vm, "transition", text);
            split_transition(&mut vm);
            Value::from(Field::Object(vm))
        };
        let good = json!({"state": "stopping", "transition_to": "start", "transition_expire": 15});
        assert_eq!(split("stopping:start:15 \n"), good);
        assert_eq!(
            split("a:b:c"),
            json!({"state": "a", "transition_to": "b", "transition_expire": null})
        );
        for text in ["", "a", "a:b", "a:b:1:2"] {
            assert_eq!(split(text), json!({ "transition": text }));
        }
    }
}
