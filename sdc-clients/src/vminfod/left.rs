// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is left of a VM that vminfod does not show.

use serde_json::Value;

use crate::shown::ShownCommand;

/// What a node has of a VM without a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// A witness still has the zone: its row, its line in the zone index, or its XML.
    pub has_zone: bool,
    /// Of the witnesses only its XML has the zone: it does not run.
    pub is_stray: bool,
    /// Its dataset.
    pub dataset: Option<String>,
    /// vminfod has seen its row and its XML go.
    pub seen_to_go: bool,
}

impl Left {
    /// Reads the `witnesses` of `/why`; a witness that could not be read has the zone.
    pub fn of(witnesses: &Value) -> Option<Self> {
        let has = |name: &str| witnesses.get(name).map(|has| *has != Value::Bool(false));
        let (row, index, xml) = (has("row")?, has("index")?, has("xml")?);
        Some(Self {
            has_zone: row || index || xml,
            is_stray: !row && !index && witnesses.get("xml")?.as_bool() == Some(true),
            dataset: match witnesses.get("dataset")? {
                Value::Null => None,
                dataset => Some(dataset.as_str()?.to_owned()),
            },
            seen_to_go: witnesses.get("seen_to_go")?.as_bool()?,
        })
    }

    /// Returns the dataset if it shows that the VM may not be gone: nobody has seen its zone go.
    pub fn holds(&self) -> Option<&str> {
        self.dataset.as_deref().filter(|_| !self.seen_to_go)
    }

    /// Returns the command that shows what holds this VM, and what ends that.
    pub fn shows(vm: &str) -> ShownCommand {
        ShownCommand::about("vminfod why VM", &[("VM", vm)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dataset_counts_unless_its_zone_was_seen_to_go() {
        let of = |row: Value, dataset: Value, seen: Value| {
            Left::of(
                &json!({"row": row, "index": false, "xml": false, "dataset": dataset, "seen_to_go": seen}),
            )
        };
        let left = of(json!(false), json!("zones/u"), json!(false)).unwrap();
        assert_eq!((left.has_zone, left.holds()), (false, Some("zones/u")));
        let left = of(json!(false), json!("zones/u"), json!(true)).unwrap();
        assert_eq!((left.has_zone, left.holds()), (false, None));
        // What could not be read is not absent, and what is of another type is no answer.
        assert!(of(Value::Null, Value::Null, json!(false)).unwrap().has_zone);
        assert!(of(json!(true), Value::Null, json!(false)).unwrap().has_zone);
        for (row, xml, is_stray) in [
            (json!(false), json!(true), true),
            (json!(false), Value::Null, false),
            (Value::Null, json!(true), false),
            (json!(true), json!(true), false),
        ] {
            let witnesses = json!({"row": row, "index": false, "xml": xml, "dataset": null, "seen_to_go": false});
            assert_eq!(Left::of(&witnesses).unwrap().is_stray, is_stray, "{witnesses}");
        }
        assert_eq!(of(json!(false), json!(1), json!(false)), None);
        assert_eq!(of(json!(false), Value::Null, Value::Null), None);
        assert_eq!(Left::of(&json!({})), None);
    }
}
