// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node's programs say of themselves, in one vocabulary. Pure.

use sdc_clients::fleet::{Need, Program, What};
use serde_json::Value;

/// The longest text of a need.
const LONGEST: usize = 300;

/// Reads a program's `/status`; none: it does not answer.
pub(crate) fn program(name: &str, page: Option<&Value>) -> (Program, Vec<Need>) {
    let need = |what: What, text: &str| {
        let text = text.chars().take(LONGEST).collect();
        Need { program: name.to_owned(), what, text }
    };
    let Some(page) = page else {
        let program = Program { name: name.to_owned(), version: None, holds: 0 };
        return (program, vec![need(What::Down, "it does not answer")]);
    };
    let text = |key: &str| page.get(key).and_then(Value::as_str);
    let holds = page.get("holds").and_then(Value::as_array).map_or(0, |all| all.len() as u64);
    let version = text("version").unwrap_or("-").to_owned();
    let mut needs = Vec::new();
    for (key, what) in [("brake", What::Brake), ("memory", What::Memory)] {
        needs.extend(text(key).map(|said| need(what, said)));
    }
    // In report mode it is meant to write nothing, and under a hold an operator is at work.
    if let (Some(said), true) = (text("mute"), text("mode") != Some("report") && holds == 0) {
        needs.push(need(What::Mute, said));
    }
    needs.extend(incomplete(page).map(|said| need(What::Incomplete, &said)));
    (Program { name: name.to_owned(), version: Some(version), holds }, needs)
}

/// What vminfod cannot read of the node.
fn incomplete(page: &Value) -> Option<String> {
    match page.get("incomplete")? {
        Value::Array(zones) if !zones.is_empty() => {
            let names: Vec<&str> = zones.iter().filter_map(Value::as_str).take(8).collect();
            Some(format!("{} zones cannot be read: {}", zones.len(), names.join(", ")))
        }
        Value::String(all) => Some(format!("zones cannot be read: {all}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_needs_a_person_is_said_in_one_vocabulary() {
        let needs = |page: Value| -> Vec<String> {
            let (_, needs) = program("vm-agent", Some(&page));
            needs.iter().map(|need| need.what.name().to_owned()).collect()
        };
        let none: [String; 0] = [];
        for (page, expected) in [
            (json!({"version": "1", "brake": null, "memory": null, "mute": null}), &none[..]),
            (json!({"brake": "12 of 13 VMs"}), &["brake".to_owned()]),
            (json!({"memory": "lost"}), &["memory".to_owned()]),
            (json!({"mute": "sysinfo names another node", "mode": "on"}), &["mute".to_owned()]),
            (json!({"mute": "report mode", "mode": "report"}), &none[..]),
            (json!({"mute": "held", "mode": "on", "holds": [{"by": "alice"}]}), &none[..]),
            (json!({"incomplete": ["zone-1"]}), &["incomplete".to_owned()]),
            (json!({"incomplete": []}), &none[..]),
            (json!({"incomplete": "*"}), &["incomplete".to_owned()]),
        ] {
            assert_eq!(needs(page.clone()), expected, "{page}");
        }
    }

    #[test]
    fn a_program_that_does_not_answer_needs_a_person() {
        let (program, needs) = program("net-agent", None);
        assert_eq!((program.version, needs[0].what.clone()), (None, What::Down));
        assert_eq!(needs[0].command().to_string(), "svcs -xv net-agent");
    }
}
