// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of GET /vms, and the page that they ask for. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::errors::{ApiError, element};
use super::filter::{self, Filter, SORTABLE, text};
use super::record::{Record, is_field};
use crate::restify::{Params, is_uuid, parse_json};

/// The most VMs of one page.
const PAGE: usize = 1000;
const STATES: &str = "Must be one of: active, destroyed, running, stopped";
const BRANDS: [&str; 5] = ["bhyve", "joyent", "joyent-minimal", "kvm", "lx"];
/// What a list is asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    filter: Filter,
    sort: String,
    descending: bool,
    marker: Option<Map<String, Value>>,
    limit: usize,
    offset: usize,
    /// The fields that are shown; the usual ones if absent.
    pub(super) fields: Option<String>,
}

/// Checks the parameters, in the order of their names.
pub(super) fn wanted(given: &Params) -> Result<Wanted, ApiError> {
    let given: BTreeMap<&str, String> =
        given.iter().map(|(name, value)| (name.as_str(), joined(value))).collect();
    if given.contains_key("offset") && given.contains_key("marker") {
        let message = "offset and marker cannot be used at the same time";
        let fields = ["offset", "marker"];
        let conflict =
            json!({ "fields": fields, "code": "ConflictingParameters", "message": message });
        return Err(ApiError::parameters(vec![conflict]));
    }
    let sort = given.get("sort").map(String::as_str);
    let mut wanted = Wanted {
        filter: Filter::All(Vec::new()),
        sort: "uuid".to_owned(),
        descending: true,
        marker: None,
        limit: PAGE,
        offset: 0,
        fields: None,
    };
    let (mut conditions, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in &given {
        match wanted.take(name, value, sort) {
            Ok(condition) => conditions.extend(condition),
            Err(Refused::Parameter(some)) => errors.extend(some),
            Err(Refused::Answer(error)) => return Err(error),
        }
    }
    if !errors.is_empty() {
        return Err(ApiError::parameters(errors));
    }
    wanted.filter = match <[Filter; 1]>::try_from(conditions) {
        Ok([only]) => only,
        Err(several) => Filter::All(several),
    };
    // The storage names the whole filter, not the part of it that it has no index for.
    if wanted.filter.is_refused() { Err(filter::invalid(&wanted.filter)) } else { Ok(wanted) }
}

/// The text of a parameter; of one that is given twice, or with a key, as the service's language prints it.
fn joined(value: &Value) -> String {
    match value {
        Value::Array(all) => all.iter().map(joined).collect::<Vec<_>>().join(","),
        Value::Object(_) => "[object Object]".to_owned(),
        value => text(value),
    }
}

enum Refused {
    Parameter(Vec<Value>),
    Answer(ApiError),
}

impl Wanted {
    /// Takes one parameter; returns the condition that it is, if it is one.
    fn take(
        &mut self,
        name: &str,
        value: &str,
        sort: Option<&str>,
    ) -> Result<Option<Filter>, Refused> {
        let wrong = |message: &str| Err(Refused::Parameter(vec![element(name, message)]));
        let is = || Ok(Some(Filter::is(name, value)));
        let number = leading_number(value);
        match name {
            "uuid" | "owner_uuid" | "server_uuid" | "image_uuid" | "billing_id" => {
                if is_uuid(value) { is() } else { wrong("Invalid UUID") }
            }
            "uuids" => {
                let bad: Vec<&str> = value.split(',').filter(|uuid| !is_uuid(uuid)).collect();
                if !bad.is_empty() {
                    return wrong(&format!("Invalid values: {}", bad.join(", ")));
                }
                Ok(Some(Filter::Any(
                    value.split(',').map(|uuid| Filter::is("uuid", uuid)).collect(),
                )))
            }
            "alias" if !is_alias(value) => {
                wrong("String does not match regexp: /^[a-zA-Z0-9][a-zA-Z0-9\\_\\.\\-]*$/")
            }
            "state" => match value {
                "active" => Ok(Some(Filter::active())),
                "destroyed" | "running" | "stopped" => is(),
                _ => wrong(STATES),
            },
            "brand" if !BRANDS.contains(&value) => wrong(&one_of(&BRANDS)),
            "docker" if !matches!(value, "true" | "false") => wrong("Invalid parameter"),
            "ram"
                if value.parse::<usize>().is_err() || (value.starts_with('0') && value != "0") =>
            {
                wrong("String does not match regexp: /^0$|^([1-9][0-9]*$)/")
            }
            "alias" | "brand" | "docker" | "ram" | "create_timestamp" | "package_name"
            | "package_version" => is(),
            "limit" => match number.filter(|n| (1..=PAGE).contains(n)) {
                Some(n) => Ok(self.limit(n)),
                None => wrong("Not a valid number: number must be >= 1 and <= 1000"),
            },
            "offset" => match number {
                Some(n) => {
                    self.offset = n;
                    Ok(None)
                }
                None => wrong("Not a valid number: number must be >= 0"),
            },
            "fields" => {
                let bad: Vec<&str> = value.split(',').filter(|field| !is_field(field)).collect();
                if !bad.is_empty() {
                    return wrong(&format!("Invalid values: {}", bad.join(", ")));
                }
                self.fields = Some(value.to_owned());
                Ok(None)
            }
            "sort" => {
                let (field, direction) = sorting(value);
                if !SORTABLE.contains(&field) {
                    return wrong(&format!("Invalid sort param: {value}"));
                }
                (self.sort, self.descending) = (field.to_owned(), direction == "DESC");
                Ok(None)
            }
            "marker" => {
                self.marker = Some(marker(value, sort).map_err(|messages| {
                    let text = |why| element("marker", &format!("Invalid marker: {value}. {why}"));
                    Refused::Parameter(messages.into_iter().map(text).collect())
                })?);
                Ok(None)
            }
            "predicate" => filter::predicate(value).map(Some).map_err(Refused::Parameter),
            "query" => filter::ldap(value).map(Some).map_err(Refused::Answer),
            _ if name.starts_with("tag.") || name.starts_with("internal_metadata.") => is(),
            _ => wrong("Invalid parameter"),
        }
    }

    fn limit(&mut self, limit: usize) -> Option<Filter> {
        self.limit = limit;
        None
    }

    /// Returns how many records match, and those of the page.
    pub(super) fn page<'a>(
        &self,
        records: impl Iterator<Item = &'a Record>,
    ) -> (usize, Vec<&'a Record>) {
        let mut all: Vec<&Record> = records.filter(|record| self.filter.fits(record)).collect();
        let count = all.len();
        all.sort_by(|a, b| self.order(a, b));
        let page = all.iter().filter(|record| self.is_after_marker(record));
        (count, page.skip(self.offset).take(self.limit).copied().collect())
    }

    /// Each field of the marker is compared on its own, as the real service does it: in a list that is
    /// sorted by another field than the uuid, pages miss VMs.
    fn is_after_marker(&self, record: &Record) -> bool {
        self.marker.iter().flatten().all(|(field, mark)| {
            let (found, mark) = (record.get(field).map(text), text(mark));
            let order = found
                .map(|found| if self.descending { mark.cmp(&found) } else { found.cmp(&mark) });
            order == Some(Ordering::Greater) || (field != "uuid" && order == Some(Ordering::Equal))
        })
    }

    fn order(&self, a: &Record, b: &Record) -> Ordering {
        let key =
            |record: &Record| (record.get(&self.sort).map(text), record.get("uuid").map(text));
        let order = key(a).cmp(&key(b));
        if self.descending { order.reverse() } else { order }
    }
}

/// The number that a text begins with, which is all that the service reads of it: of `1e3` the 1.
fn leading_number(text: &str) -> Option<usize> {
    let text = text.trim_start().trim_start_matches('+');
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The message for a value that is none of these.
pub(super) fn one_of(values: &[&str]) -> String {
    format!("Must be one of: {}", values.join(", "))
}

/// Returns the message for an unknown brand.
pub(super) fn check_brand(brand: &str) -> Option<String> {
    (!BRANDS.contains(&brand)).then(|| one_of(&BRANDS))
}

fn is_alias(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || b"_.-".contains(&byte))
}

/// Splits `FIELD.ASC` and `FIELD.DESC`.
fn sorting(text: &str) -> (&str, &'static str) {
    let upper = text.to_ascii_uppercase();
    for (end, direction) in [(".ASC", "ASC"), (".DESC", "DESC")] {
        if upper.ends_with(end) {
            return (text.get(..text.len() - end.len()).unwrap_or_default(), direction);
        }
    }
    (text, "ASC")
}

/// Reads a marker: an object with the uuid of the last VM that was seen and, where the list is sorted by
/// another field, that field.
fn marker(text: &str, sort: Option<&str>) -> Result<Map<String, Value>, Vec<String>> {
    let value = parse_json(text.as_bytes(), false).map_err(|why| {
        vec![format!("Could not parse marker as an object JSON representation, reason: {why}")]
    })?;
    let Value::Object(marker) = value else {
        return Err(vec!["Marker must represent an object.".to_owned()]);
    };
    let mut wrong = Vec::new();
    if !marker.contains_key("uuid") {
        wrong.push(
            "A marker needs to have a uuid property from which a strict total order can be established"
                .to_owned(),
        );
    }
    let field = sort.map(|sort| sorting(sort).0).filter(|field| *field != "uuid");
    let sorted_by = format!("Sort fields: {}.", field.unwrap_or("undefined"));
    if field.is_some_and(|field| !marker.contains_key(field)) {
        wrong.push(format!("All sort fields must be present in marker. {sorted_by}"));
    }
    if !marker.keys().map(String::as_str).filter(|key| *key != "uuid").eq(field) {
        wrong.push(format!(
            "All marker keys except uuid must be present in the sort parameter. {sorted_by}"
        ));
    }
    if let Some(Value::String(time)) = marker.get("create_timestamp")
        && time.parse::<jiff::Timestamp>().is_err()
    {
        wrong.push(format!("Marker has an invalid create_timestamp field: {time}"));
    }
    if wrong.is_empty() { Ok(marker) } else { Err(wrong) }
}
