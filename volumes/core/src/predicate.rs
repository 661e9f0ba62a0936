// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The predicates of a list: JSON of and, or, eq, ne, lt, le, gt, ge over fields of volumes.

use serde_json::Value;

use super::checks;
use super::refused::Cause;
use super::script::{inspect, is_falsy, parse_json, string, type_of};
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

impl Field {
    /// Checks a value that it is compared with.
    fn check(self, value: &Value, fields: Fields) -> Result<(), String> {
        let value = Some(value);
        match self {
            Field::Name => checks::name(value),
            Field::State => checks::state(value, fields == Fields::All),
            Field::Type => checks::kind(value),
            Field::Uuid => checks::uuid(value, "uuid"),
            Field::Network => checks::uuid(value, "volume network"),
            Field::Size => checks::size(value),
            Field::Dangling => Ok(()),
            Field::OwnerUuid => checks::uuid(value, "owner_uuid"),
            Field::BillingId => checks::uuid(value, "billing_id"),
            Field::Tags => tag_of(value).map(drop),
        }
    }
}

impl Predicate {
    /// Reads the value of the parameter; none where it is empty.
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
        form(&parsed, 0).and_then(|()| typed(&parsed, fields)).map_err(Cause::Predicate).and_then(
            |predicate| match predicate.bad_values(fields) {
                bad if bad.is_empty() => Ok(Some(predicate)),
                bad => {
                    Err(Cause::Parameter(format!("Invalid values in predicate: {}", bad.join(","))))
                }
            },
        )
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

    /// Returns what is wrong with the values, those of a field together: the fields in the order in which they
    /// first stand.
    fn bad_values(&self, fields: Fields) -> Vec<String> {
        let mut compared = Vec::new();
        self.collect_values(&mut compared);
        let mut order: Vec<Field> = Vec::new();
        for (field, _) in &compared {
            if !order.contains(field) {
                order.push(*field);
            }
        }
        let bad = |field: Field| {
            let of_field = compared.iter().filter(move |(it, _)| *it == field);
            of_field.filter_map(move |(_, value)| field.check(value, fields).err())
        };
        order.into_iter().flat_map(bad).map(|text| format!("Error: {text}")).collect()
    }

    fn collect_values<'a>(&'a self, found: &mut Vec<(Field, &'a Value)>) {
        match self {
            Predicate::And(parts) | Predicate::Or(parts) => {
                parts.iter().for_each(|part| part.collect_values(found));
            }
            Predicate::Compare(_, field, value) => found.push((*field, value)),
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

/// Checks the form of a whole predicate, before any field or type. `{}` is always true.
fn form(value: &Value, level: usize) -> Result<(), String> {
    let shown = inspect(value);
    let wrong = |what: String| format!("predicate {shown}: {what}");
    if level > DEPTH {
        return Err(wrong(format!("is nested deeper than {DEPTH}")));
    }
    let (count, operator, operands) = match value {
        Value::Object(fields) => match fields.iter().next() {
            None => return Ok(()),
            Some((operator, operands)) => (fields.len(), operator.as_str(), operands),
        },
        Value::Array(items) => match items.first() {
            None => return Ok(()),
            Some(operands) => (items.len(), "0", operands),
        },
        _ => return Err(wrong("must be an object".to_owned())),
    };
    if count > 1 {
        return Err(format!("predicate \"{shown}\": expected one key, but found {count}"));
    }
    let is_logical = operator == "and" || operator == "or";
    if !is_logical && operator_of(operator).is_none() {
        return Err(wrong(format!("unknown operator \"{operator}\"")));
    }
    let Value::Array(operands) = operands else {
        return Err(wrong(match (is_falsy(Some(operands)), is_logical) {
            (true, true) => format!("expected \"{operator}\" in logical expression"),
            (true, false) => format!("missing key \"{operator}\""),
            (false, _) => format!("operator \"{operator}\": expected array"),
        }));
    };
    if is_logical {
        if operands.len() < 2 {
            let what = "expected at least 2 elements in array";
            return Err(wrong(format!("operator \"{operator}\": {what}")));
        }
        return operands.iter().try_for_each(|part| form(part, level + 1));
    }
    match &operands[..] {
        [Value::String(_), Value::String(_) | Value::Number(_) | Value::Bool(_)] => Ok(()),
        [Value::String(name), _] => {
            Err(wrong(format!("field \"{name}\" is not a string, number, or boolean")))
        }
        [_, _] => Err(wrong(format!("field \"{operator}\" is not a string"))),
        _ => Err(wrong(format!("\"{operator}\" array must have 2 elements"))),
    }
}

/// Reads a predicate of a good form: the first field that there is not, or that is compared with a value of
/// another type, is an error. The values are checked later.
fn typed(value: &Value, fields: Fields) -> Result<Predicate, String> {
    let wrong = |what: String| format!("predicate {}: {what}", inspect(value));
    let entry = value.as_object().and_then(|fields| fields.iter().next());
    let Some((operator, Value::Array(operands))) = entry else {
        return Ok(Predicate::And(Vec::new()));
    };
    let parts = || operands.iter().map(|part| typed(part, fields)).collect::<Result<_, _>>();
    let (name, operand) = match (operator.as_str(), &operands[..]) {
        ("and", _) => return Ok(Predicate::And(parts()?)),
        ("or", _) => return Ok(Predicate::Or(parts()?)),
        (_, [name, operand]) => (name, operand),
        _ => return Ok(Predicate::And(Vec::new())),
    };
    let compared = operator_of(operator).unwrap_or(Operator::Eq);
    let got = type_of(Some(operand));
    if !matches!(compared, Operator::Eq | Operator::Ne) && got != "number" {
        let what = format!("cannot be applied to fields of type \"{got}\"");
        return Err(wrong(format!("operator \"{operator}\" {what}")));
    }
    let known = fields.known().iter().find(|(known, ..)| name == known);
    let Some((name, field, kind)) = known else {
        return Err(wrong(format!("field \"{}\" is not defined", string(Some(name)))));
    };
    if got != *kind {
        let what = format!("expected \"{kind}\", but got \"{got}\"");
        return Err(wrong(format!("field \"{name}\" value (\"{}\") {what}", inspect(operand))));
    }
    Ok(Predicate::Compare(compared, *field, operand.clone()))
}

fn operator_of(name: &str) -> Option<Operator> {
    OPERATORS.iter().find(|(known, _)| *known == name).map(|(_, operator)| *operator)
}

#[cfg(test)]
mod tests;
