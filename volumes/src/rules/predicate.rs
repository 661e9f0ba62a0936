// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The predicates of a list: JSON of and, or, eq, ne, lt, le, gt, ge over fields of volumes.

use serde_json::Value;

use super::checks;
use super::refused::Cause;
use super::script::{inspect, parse_json, string, type_of};
use super::volume::Volume;

/// Nested deeper than this a predicate is refused.
const DEPTH: usize = 32;

/// A predicate, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// All of them hold.
    And(Vec<Predicate>),
    /// One of them holds.
    Or(Vec<Predicate>),
    /// A field is compared with a value.
    Compare(Operator, Field, Value),
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names on the wire
pub enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names on the wire
pub enum Field {
    Name,
    State,
    Type,
    Uuid,
    Network,
    Size,
    /// The volume has no references.
    Dangling,
    OwnerUuid,
    BillingId,
    /// A tag and its value: `KEY=VALUE`.
    Tags,
}

/// Which fields may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Those of the deployed service.
    Deployed,
    /// Those of RFD 26 too.
    All,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("eq", Operator::Eq),
    ("ne", Operator::Ne),
    ("lt", Operator::Lt),
    ("le", Operator::Le),
    ("gt", Operator::Gt),
    ("ge", Operator::Ge),
];

/// How many of the fields the deployed service has: the first ones.
const DEPLOYED: usize = 7;

const FIELDS: [(&str, Field, &str); 10] = [
    ("name", Field::Name, "string"),
    ("state", Field::State, "string"),
    ("type", Field::Type, "string"),
    ("uuid", Field::Uuid, "string"),
    ("network", Field::Network, "string"),
    ("size", Field::Size, "number"),
    ("dangling", Field::Dangling, "boolean"),
    ("owner_uuid", Field::OwnerUuid, "string"),
    ("billing_id", Field::BillingId, "string"),
    ("tags", Field::Tags, "string"),
];

impl Fields {
    fn known(self) -> &'static [(&'static str, Field, &'static str)] {
        match self {
            Fields::Deployed => &FIELDS[..DEPLOYED],
            Fields::All => &FIELDS,
        }
    }
}

impl Predicate {
    /// Reads the value of the parameter; none where it says nothing.
    ///
    /// # Errors
    /// The first fault of its form, or all bad values.
    pub fn read(value: &Value, fields: Fields) -> Result<Option<Predicate>, Cause> {
        let text = string(Some(value));
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = parse_json(&text).map_err(|why| {
            Cause::Predicate(format!("Could not parse JSON predicate {text}: {why}"))
        })?;
        let is_empty = match &parsed {
            Value::Object(fields) => fields.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        if is_empty {
            return Ok(None);
        }
        let predicate = form(&parsed, fields, 0).map_err(Cause::Predicate)?;
        let mut bad = Vec::new();
        predicate.check_values(&mut bad);
        if bad.is_empty() {
            return Ok(Some(predicate));
        }
        let bad: Vec<String> = bad.into_iter().map(|text| format!("Error: {text}")).collect();
        Err(Cause::Parameter(format!("Invalid values in predicate: {}", bad.join(", "))))
    }

    /// Returns the names of the fields that it compares, each once.
    pub fn fields(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        self.collect_fields(&mut found);
        found
    }

    fn collect_fields(&self, found: &mut Vec<&'static str>) {
        match self {
            Predicate::And(parts) | Predicate::Or(parts) => {
                parts.iter().for_each(|part| part.collect_fields(found));
            }
            Predicate::Compare(_, field, _) => {
                let name = FIELDS.iter().find(|(_, it, _)| it == field).map(|(name, ..)| *name);
                found.extend(name.filter(|name| !found.contains(name)));
            }
        }
    }

    fn check_values(&self, bad: &mut Vec<String>) {
        match self {
            Predicate::And(parts) | Predicate::Or(parts) => {
                parts.iter().for_each(|part| part.check_values(bad));
            }
            Predicate::Compare(_, field, value) => {
                let value = Some(value);
                bad.extend(
                    match field {
                        Field::Name => checks::name(value),
                        Field::State => checks::state(value),
                        Field::Type => checks::kind(value),
                        Field::Uuid => checks::uuid(value, "uuid"),
                        Field::Network => checks::uuid(value, "volume network"),
                        Field::Size => checks::size(value),
                        Field::Dangling => Ok(()),
                        Field::OwnerUuid => checks::uuid(value, "owner_uuid"),
                        Field::BillingId => checks::uuid(value, "billing_id"),
                        Field::Tags => tag_of(value).map(drop),
                    }
                    .err(),
                );
            }
        }
    }

    /// Returns true if it holds for the volume.
    pub fn holds(&self, volume: &Volume) -> bool {
        match self {
            Predicate::And(parts) => parts.iter().all(|part| part.holds(volume)),
            Predicate::Or(parts) => parts.iter().any(|part| part.holds(volume)),
            Predicate::Compare(operator, field, value) => {
                let is_equal = match field {
                    Field::Name => value == volume.name(),
                    Field::State => value == volume.state().name(),
                    Field::Type => value == volume.kind(),
                    Field::Uuid => value == volume.uuid(),
                    Field::Network => volume.networks().iter().any(|network| value == network),
                    Field::Size => value.as_f64() == Some(volume.size()),
                    Field::Dangling => value.as_bool() == Some(volume.refs().is_empty()),
                    Field::OwnerUuid => value == volume.owner_uuid(),
                    Field::BillingId => value.as_str() == volume.billing_id(),
                    Field::Tags => {
                        tag_of(Some(value)).is_ok_and(|(key, text)| volume.tag(key) == Some(text))
                    }
                };
                let limit = value.as_f64().unwrap_or_default();
                match operator {
                    Operator::Eq => is_equal,
                    Operator::Ne => !is_equal,
                    Operator::Lt => volume.size() < limit,
                    Operator::Le => volume.size() <= limit,
                    Operator::Gt => volume.size() > limit,
                    Operator::Ge => volume.size() >= limit,
                }
            }
        }
    }
}

/// A tag and its value.
fn tag_of(value: Option<&Value>) -> Result<(&str, &str), String> {
    let parts = value.and_then(Value::as_str).and_then(|text| text.split_once('='));
    let bad = || format!("{} is not of the form KEY=VALUE", string(value));
    parts.filter(|(key, _)| !key.is_empty()).ok_or_else(bad)
}

/// Reads the form of a predicate; the values are checked later.
fn form(value: &Value, fields: Fields, level: usize) -> Result<Predicate, String> {
    let shown = inspect(value);
    let wrong = |what: String| format!("predicate {shown}: {what}");
    if level > DEPTH {
        return Err(wrong(format!("is nested deeper than {DEPTH}")));
    }
    let (operator, operands) = match value {
        Value::Object(fields) => match (fields.len(), fields.iter().next()) {
            (1, Some(entry)) => (entry.0.clone(), entry.1),
            (count, _) => {
                return Err(format!("predicate \"{shown}\": expected one key, but found {count}"));
            }
        },
        Value::Array(items) if items.len() == 1 => ("0".to_owned(), value),
        Value::Array(items) => {
            let count = items.len();
            return Err(format!("predicate \"{shown}\": expected one key, but found {count}"));
        }
        _ => return Err(wrong("must be an object".to_owned())),
    };
    let compared = OPERATORS.iter().find(|(name, _)| *name == operator).map(|(_, it)| *it);
    if compared.is_none() && operator != "and" && operator != "or" {
        return Err(wrong(format!("unknown operator \"{operator}\"")));
    }
    let Value::Array(operands) = operands else {
        return Err(wrong(format!("operator \"{operator}\": expected array")));
    };
    let Some(compared) = compared else {
        if operands.len() < 2 {
            let what = "expected at least 2 elements in array";
            return Err(wrong(format!("operator \"{operator}\": {what}")));
        }
        let parts = operands.iter().map(|part| form(part, fields, level + 1));
        let parts = parts.collect::<Result<_, _>>()?;
        return Ok(if operator == "and" { Predicate::And(parts) } else { Predicate::Or(parts) });
    };
    let [field, operand] = &operands[..] else {
        return Err(wrong(format!("\"{operator}\" array must have 2 elements")));
    };
    let named = fields.known().iter().find(|(name, ..)| field == name);
    let Some((name, field, kind)) = named else {
        return Err(wrong(format!("field \"{}\" is not defined", string(Some(field)))));
    };
    if !matches!(compared, Operator::Eq | Operator::Ne) && *kind != "number" {
        let what = format!("cannot be applied to fields of type \"{kind}\"");
        return Err(wrong(format!("operator \"{operator}\" {what}")));
    }
    let got = type_of(Some(operand));
    if got != *kind {
        let shown = inspect(operand);
        let what = format!("expected \"{kind}\", but got \"{got}\"");
        return Err(wrong(format!("field \"{name}\" value (\"{shown}\") {what}")));
    }
    Ok(Predicate::Compare(compared, *field, operand.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::volume::NewVolume;

    const NETWORK: &str = "8036d58d-7821-4ae3-a752-15be1d92344c";
    const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

    fn volume() -> Volume {
        Volume::new(NewVolume {
            uuid: "u".to_owned(),
            labels: Some(json!({"a": "b=c"})),
            name: "alpha".to_owned(),
            owner_uuid: OWNER.to_owned(),
            size: 20480.0,
            create_timestamp: 0,
            refs: Vec::new(),
            networks: vec![NETWORK.to_owned()],
            vm_uuid: "v".to_owned(),
        })
    }

    fn holds(predicate: Value, volume: &Volume) -> bool {
        let text = json!(predicate.to_string());
        Predicate::read(&text, Fields::All).unwrap().unwrap().holds(volume)
    }

    #[test] // V8
    fn comparisons_networks_and_dangling_work_wherever_they_stand() {
        let mut volume = volume();
        for (operator, limit, expected) in [
            ("lt", 20480, false),
            ("lt", 20481, true),
            ("le", 20480, true),
            ("gt", 20480, false),
            ("gt", 20479, true),
            ("ge", 20481, false),
            ("ne", 20480, false),
        ] {
            assert_eq!(holds(json!({operator: ["size", limit]}), &volume), expected, "{operator}");
        }
        assert!(holds(json!({"eq": ["network", NETWORK]}), &volume));
        let twice = json!({"or": [{"eq": ["dangling", false]}, {"eq": ["dangling", false]}]});
        assert!(!holds(twice.clone(), &volume));
        volume.add_ref("a");
        assert!(holds(twice, &volume));
    }

    #[test] // V116
    fn owners_packages_and_tags_are_compared() {
        let mut volume = volume();
        let is = |field: &str, value: &str, volume: &Volume| {
            holds(json!({"eq": [field, value]}), volume)
        };
        assert!(is("owner_uuid", OWNER, &volume) && !is("owner_uuid", NETWORK, &volume));
        assert!(!is("billing_id", NETWORK, &volume), "it has no package");
        volume.set_billing_id(NETWORK);
        assert!(is("billing_id", NETWORK, &volume));
        assert!(is("tags", "a=b=c", &volume) && !is("tags", "a=b", &volume));
        assert!(!is("tags", "b=a", &volume));
        assert!(holds(json!({"ne": ["tags", "a=x"]}), &volume));
        for (field, value) in [("tags", "a"), ("tags", "=b"), ("billing_id", "x")] {
            let text = json!(json!({"eq": [field, value]}).to_string());
            assert!(Predicate::read(&text, Fields::All).is_err(), "{field} {value}");
        }
    }

    #[test]
    fn depth_has_a_bound() {
        let leaf = json!({"eq": ["dangling", true]});
        let deep = (0..40).fold(leaf.clone(), |inner, _| json!({"and": [inner, leaf]}));
        assert!(Predicate::read(&json!(deep.to_string()), Fields::All).is_err());
    }
}
