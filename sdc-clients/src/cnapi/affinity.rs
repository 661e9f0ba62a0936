// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Affinity: beside which VMs, or away from which, one is placed. CNAPI takes objects; people write
//! `instance==web1`, `role!=db`, `instance==~web*` (the tilde: if that can be), `role==/^web/`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;

use crate::quoted::quoted;

const ODD: &str = "the expression has more than letters, digits, -_. and ^ $ * +";

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Affinity {
    /// `instance`, or the name of a tag.
    pub key: String,
    /// `==` or `!=`.
    pub operator: &'static str,
    /// What the instance's name or uuid, or the tag, is to be.
    pub value: String,
    /// `exact`, `glob` or `re`.
    #[serde(rename = "valueType")]
    pub value_type: &'static str,
    /// It is only wished.
    #[serde(rename = "isSoft")]
    pub is_soft: bool,
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAffinity {
    rule: String,
    why: &'static str,
}

impl fmt::Display for BadAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "affinity {}: {}", quoted(&self.rule), self.why)
    }
}

impl std::error::Error for BadAffinity {}

impl Affinity {
    /// Returns the rules of a list of texts and of objects, or of the JSON text of such a list.
    pub fn list(given: &Value) -> Result<Vec<Affinity>, BadAffinity> {
        let bad = |why| BadAffinity { rule: given.to_string(), why };
        match given {
            Value::Array(rules) => rules.iter().map(Affinity::of).collect(),
            Value::String(text) => match serde_json::from_str(text) {
                Ok(Value::Array(rules)) => rules.iter().map(Affinity::of).collect(),
                _ => Err(bad("it is no list of rules")),
            },
            _ => Err(bad("it is no list of rules")),
        }
    }

    /// Returns a rule that is a text, or an object as CNAPI takes it.
    fn of(rule: &Value) -> Result<Affinity, BadAffinity> {
        let bad = |why| BadAffinity { rule: rule.to_string(), why };
        if let Some(text) = rule.as_str() {
            return text.parse();
        }
        let text = |name: &str| rule[name].as_str().filter(|text| !text.is_empty());
        let one_of = |name: &str, words: &[&'static str]| {
            words.iter().copied().find(|word| text(name) == Some(word))
        };
        let operator = one_of("operator", &["==", "!="]);
        let value_type = one_of("valueType", &["exact", "glob", "re"]);
        let (Some(key), Some(value)) = (text("key"), text("value")) else {
            return Err(bad("it lacks the name or the value"));
        };
        let operator = operator.ok_or_else(|| bad("its operator is neither == nor !="))?;
        let value_type = value_type.ok_or_else(|| bad("its valueType is not exact, glob or re"))?;
        let is_soft = rule["isSoft"].as_bool().ok_or_else(|| bad("its isSoft is no boolean"))?;
        if value_type == "re" && !is_plain(value) {
            return Err(bad(ODD));
        }
        let (key, value) = (key.to_owned(), value.to_owned());
        Ok(Affinity { key, operator, value, value_type, is_soft })
    }
}

impl FromStr for Affinity {
    type Err = BadAffinity;

    fn from_str(rule: &str) -> Result<Affinity, BadAffinity> {
        let bad = |why| BadAffinity { rule: rule.to_owned(), why };
        let at = |operator: &'static str| Some((rule.find(operator)?, operator));
        let first = [at("=="), at("!=")].into_iter().flatten().min();
        let (at, operator) = first.ok_or_else(|| bad("it has neither == nor !="))?;
        let key = rule[..at].trim();
        let value = rule[at + operator.len()..].trim();
        let (value, is_soft) =
            value.strip_prefix('~').map_or((value, false), |it| (it.trim(), true));
        if key.is_empty() || value.is_empty() {
            return Err(bad("it lacks the name or the value"));
        }
        let expression = value.strip_prefix('/').and_then(|it| it.strip_suffix('/'));
        let (value, value_type) = match expression {
            // One that CNAPI cannot read ends its process.
            Some(expression) if !is_plain(expression) => {
                return Err(bad(ODD));
            }
            Some(expression) => (expression, "re"),
            None if value.contains('*') => (value, "glob"),
            None => (value, "exact"),
        };
        Ok(Affinity { key: key.to_owned(), operator, value: value.to_owned(), value_type, is_soft })
    }
}

/// Returns true for an expression that every reader of expressions can read.
fn is_plain(expression: &str) -> bool {
    let mut before = None;
    !expression.is_empty()
        && expression.chars().all(|c| {
            let repeats =
                matches!(before.replace(c), Some(b) if b == '.' || b.is_ascii_alphanumeric());
            c.is_ascii_alphanumeric() || "-_. ^$".contains(c) || ("*+".contains(c) && repeats)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test] // CN7
    fn a_rule_is_sent_as_its_object() {
        let sent = |rule: &str| serde_json::to_value(rule.parse::<Affinity>().unwrap()).unwrap();
        let object = |key: &str, operator: &str, value: &str, kind: &str, soft: bool| json!({ "key": key, "operator": operator, "value": value, "valueType": kind, "isSoft": soft });
        assert_eq!(sent("instance==web1"), object("instance", "==", "web1", "exact", false));
        assert_eq!(sent("role != ~db*"), object("role", "!=", "db*", "glob", true));
        assert_eq!(sent("role==/^web.*$/"), object("role", "==", "^web.*$", "re", false));
        for bad in
            ["web1", "==x", "instance==", "a=b", "instance==/(/", "instance==/*a/", "instance==//"]
        {
            assert!(bad.parse::<Affinity>().is_err(), "{bad}");
        }
    }

    #[test] // CN7
    fn rules_come_as_texts_as_objects_and_as_the_text_of_a_list() {
        let object = json!({"key": "role", "operator": "!=", "value": "db", "isSoft": false, "valueType": "exact"});
        let soft = json!({"key": "instance", "operator": "==", "value": "w*", "isSoft": true, "valueType": "glob"});
        let sent = |given: &Value| Affinity::list(given).map(|rules| json!(rules));
        assert_eq!(sent(&json!([object, soft])).unwrap(), json!([object, soft]));
        assert_eq!(sent(&json!(["role!=db", "instance==~w*"])).unwrap(), json!([object, soft]));
        assert_eq!(
            sent(&json!(json!([object, "instance==~w*"]).to_string())).unwrap(),
            json!([object, soft])
        );
        assert_eq!(sent(&json!([])).unwrap(), json!([]));
        let without = |name: &str| {
            let mut rule = object.clone();
            rule.as_object_mut().unwrap().remove(name);
            json!([rule])
        };
        for name in ["key", "operator", "value", "isSoft", "valueType"] {
            assert!(sent(&without(name)).is_err(), "{name}");
        }
        let with = |name: &str, value: Value| {
            let mut rule = object.clone();
            rule[name] = value;
            json!([rule])
        };
        for (name, value) in [
            ("operator", json!("=")),
            ("isSoft", json!("true")),
            ("valueType", json!("regex")),
            ("value", json!(7)),
        ] {
            assert!(sent(&with(name, value)).is_err(), "{name}");
        }
        let expression = json!([{"key": "a", "operator": "==", "value": "(", "isSoft": true, "valueType": "re"}]);
        for bad in [expression, json!("role!=db"), json!({}), json!([1]), json!([null]), json!(7)] {
            assert!(sent(&bad).is_err(), "{bad}");
        }
    }
}
