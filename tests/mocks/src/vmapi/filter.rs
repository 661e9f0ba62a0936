// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Conditions on records: the predicates and LDAP filters of a list, and what the storage says to those that
//! it has no index for. Pure.

use std::fmt;

use serde_json::Value;

use super::errors::{ApiError, element};
use super::record::Record;
use crate::faults::glob;

/// A condition on a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Not(Box<Filter>),
    /// The field, the operator (`=`, `>=`, `<=`, `>`, `<`) and the value, in which a `*` stands for any text.
    Is(String, &'static str, String),
}

/// The fields by which a list can be sorted.
pub(super) const SORTABLE: [&str; 13] = [
    "uuid",
    "owner_uuid",
    "image_uuid",
    "billing_id",
    "server_uuid",
    "package_name",
    "package_version",
    "brand",
    "state",
    "alias",
    "max_physical_memory",
    "create_timestamp",
    "docker",
];
/// So deep a filter is read; one that is deeper is refused.
const DEEPEST: usize = 100;
const OPERATORS: [(&str, &str); 5] =
    [("eq", "="), ("ge", ">="), ("le", "<="), ("gt", ">"), ("lt", "<")];

impl Filter {
    /// The field has this value.
    pub(super) fn is(field: &str, value: impl Into<String>) -> Self {
        let field = if field == "ram" { "max_physical_memory" } else { field };
        Filter::Is(field.to_owned(), "=", value.into())
    }

    /// The field has another value, or none.
    pub(super) fn is_not(field: &str, value: &str) -> Self {
        Filter::Not(Box::new(Filter::is(field, value)))
    }

    /// Neither destroyed nor failed.
    pub(super) fn active() -> Self {
        Filter::All(["destroyed", "failed"].map(|state| Filter::is_not("state", state)).to_vec())
    }

    /// Returns true if the storage has no index for a condition in it, however deep.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().any(Filter::is_refused),
            Filter::Not(part) => part.is_refused(),
            Filter::Is(field, operator, _) => {
                let known = SORTABLE.contains(&field.as_str())
                    || field == "internal_metadata"
                    || field.starts_with("tag.")
                    || field.starts_with("internal_metadata.");
                !known || matches!(*operator, ">" | "<")
            }
        }
    }

    /// Returns true if the record fulfils it.
    pub(super) fn fits(&self, record: &Record) -> bool {
        match self {
            Filter::All(parts) => parts.iter().all(|part| part.fits(record)),
            Filter::Any(parts) => parts.iter().any(|part| part.fits(record)),
            Filter::Not(part) => !part.fits(record),
            Filter::Is(field, operator, wanted) => {
                value(record, field).is_some_and(|found| compare(&text(found), operator, wanted))
            }
        }
    }
}

fn value<'a>(record: &'a Record, field: &str) -> Option<&'a Value> {
    match field.split_once('.') {
        Some(("tag", key)) => record.get("tags")?.get(key),
        Some((map, key)) => record.get(map)?.get(key),
        None => record.get(field),
    }
}

/// The text of a value, without quotes.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn compare(found: &str, operator: &str, wanted: &str) -> bool {
    let order = match (found.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(found), Ok(wanted)) => found.partial_cmp(&wanted),
        _ => Some(found.cmp(wanted)),
    };
    match operator {
        "=" => glob(wanted, found),
        ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
        _ => order.is_some_and(std::cmp::Ordering::is_le),
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut several = |sign: &str, parts: &[Filter]| {
            let parts: String = parts.iter().map(Filter::to_string).collect();
            write!(f, "({sign}{parts})")
        };
        match self {
            Filter::All(parts) => several("&", parts),
            Filter::Any(parts) => several("|", parts),
            Filter::Not(part) => several("!", std::slice::from_ref(part)),
            Filter::Is(field, operator, value) => write!(f, "({field}{operator}{value})"),
        }
    }
}

/// Reads the predicate of a list.
pub(super) fn predicate(given: &str) -> Result<Filter, Vec<Value>> {
    let wrong = |message: &str| vec![element("predicate", message)];
    let Ok(value) = serde_json::from_str::<Value>(given) else {
        return Err(wrong("Unable to parse predicate as JSON"));
    };
    parse(&value).map_err(|why| {
        let empty = matches!(&value, Value::Object(map) if map.is_empty())
            || value == serde_json::json!([]);
        let mut errors = if empty { wrong("Empty predicate") } else { Vec::new() };
        errors.extend(wrong(&format!("Predicate syntax error: Error: predicate {why}")));
        errors
    })
}

fn parse(value: &Value) -> Result<Filter, String> {
    let map = value.as_object();
    let Some((key, operands)) = map.and_then(|map| map.iter().next()) else {
        return Err("is missing a key".to_owned());
    };
    let operands = operands.as_array().map(Vec::as_slice).unwrap_or_default();
    let several = || operands.iter().map(parse).collect::<Result<Vec<_>, _>>();
    let operator = OPERATORS.iter().find(|(name, _)| name == key).map(|(_, sign)| *sign);
    match (key.as_str(), operator, operands) {
        ("and", ..) => Ok(Filter::All(several()?)),
        ("or", ..) => Ok(Filter::Any(several()?)),
        ("ne", _, [Value::String(field), value]) => Ok(Filter::is_not(field, &text(value))),
        (_, Some(sign), [Value::String(field), wanted]) => match Filter::is(field, text(wanted)) {
            Filter::Is(field, _, wanted) => Ok(Filter::Is(field, sign, wanted)),
            other => Ok(other),
        },
        _ => Err(format!("has an invalid key {key:?}")),
    }
}

/// Reads an LDAP filter, such as `(&(state=running)(alias=web*))`.
pub(super) fn ldap(given: &str) -> Result<Filter, ApiError> {
    match ldap_part(given, DEEPEST) {
        Some((filter, "")) => Ok(filter),
        _ => Err(invalid(given)),
    }
}

/// The storage has no index for a filter, or cannot read it.
pub(super) fn invalid(filter: impl fmt::Display) -> ApiError {
    ApiError::refused_by_storage(&format!("{filter} is an invalid filter"))
}

fn ldap_part(text: &str, deeper: usize) -> Option<(Filter, &str)> {
    let inner = text.strip_prefix('(')?;
    let Some(sign) = inner.chars().next().filter(|sign| "&|!".contains(*sign)) else {
        let (leaf, rest) = inner.split_once(')')?;
        let at = leaf.find(['<', '>', '='])?;
        let (field, rest_of_leaf) = leaf.split_at(at);
        let sign =
            ["=", ">=", "<=", ">", "<"].into_iter().filter(|sign| rest_of_leaf.starts_with(sign));
        let sign = sign.max_by_key(|sign| sign.len())?;
        let wanted = rest_of_leaf.get(sign.len()..)?.to_owned();
        return Some((Filter::Is(field.to_owned(), sign, wanted), rest));
    };
    let (mut parts, mut rest) = (Vec::new(), inner.get(1..)?);
    while rest.starts_with('(') {
        let (part, after) = ldap_part(rest, deeper.checked_sub(1)?)?;
        parts.push(part);
        rest = after;
    }
    let rest = rest.strip_prefix(')')?;
    let filter = match sign {
        '&' => Filter::All(parts),
        '|' => Filter::Any(parts),
        _ => Filter::Not(Box::new(parts.pop()?)),
    };
    Some((filter, rest))
}
