// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The NIC list: known parameters, matching records, pages.

use std::fmt;

use serde_json::Value;

use super::eras::Era;
use super::errors::{ApiError, unknown};
use super::params::{self, Checked};
use super::rows::{FLAGS, NicRow};
use super::store::World;
use crate::restify::Params;

#[derive(Default)]
struct Filter {
    owner_uuid: Option<Vec<String>>,
    cn_uuid: Option<Vec<String>>,
    belongs_to_uuid: Option<Vec<String>>,
    network_uuid: Option<Vec<String>>,
    belongs_to_type: Option<Vec<String>>,
    nic_tag: Option<Vec<String>>,
    nic_tags_provided: Option<Vec<String>>,
    state: Option<Vec<String>>,
    flags: [Option<bool>; 6],
    limit: Option<usize>,
    offset: usize,
}

/// `!x` inside a list of several excludes x; alone it is literal. `*` stands for any text.
fn selects(wanted: &[String], has: &dyn Fn(&str) -> bool) -> bool {
    if let [only] = wanted {
        return only == "*" || has(only);
    }
    let (not, yes): (Vec<_>, Vec<_>) = wanted.iter().partition(|w| w.starts_with('!'));
    not.iter().all(|w| !has(w.trim_start_matches('!')))
        && (yes.is_empty() || yes.iter().any(|w| has(w)))
}

fn wants(wanted: Option<&Vec<String>>, has: &dyn Fn(&str) -> bool) -> bool {
    wanted.is_none_or(|wanted| selects(wanted, has))
}

impl Filter {
    fn matches(&self, nic: &NicRow) -> bool {
        let tag = |w: &str| {
            nic.nic_tag.as_deref().is_some_and(|t| t == w || t.split('/').next() == Some(w))
        };
        wants(self.owner_uuid.as_ref(), &|w| nic.owner_uuid == w)
            && wants(self.cn_uuid.as_ref(), &|w| {
                nic.cn_uuids.iter().any(|cn| cn.eq_ignore_ascii_case(w))
            })
            && wants(self.belongs_to_uuid.as_ref(), &|w| nic.belongs_to_uuid == w)
            && wants(self.network_uuid.as_ref(), &|w| {
                nic.address.as_ref().is_some_and(|(n, _)| n == w)
            })
            && wants(self.belongs_to_type.as_ref(), &|w| nic.belongs_to_type == w)
            && wants(self.nic_tag.as_ref(), &tag)
            && wants(self.nic_tags_provided.as_ref(), &|w| {
                nic.nic_tags_provided.iter().any(|t| t == w)
            })
            && wants(self.state.as_ref(), &|w| nic.state == w)
            && self.flags.iter().zip(nic.flags).all(|(wanted, has)| wanted.is_none_or(|w| w == has))
    }
}

impl fmt::Display for Filter {
    /// The filter as it goes to the storage: values as they were given, wild characters and parentheses too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("owner_uuid", &self.owner_uuid),
            ("cn_uuid", &self.cn_uuid),
            ("belongs_to_uuid", &self.belongs_to_uuid),
            ("network_uuid", &self.network_uuid),
            ("belongs_to_type", &self.belongs_to_type),
            ("nic_tag", &self.nic_tag),
            ("nic_tags_provided", &self.nic_tags_provided),
            ("state", &self.state),
        ];
        f.write_str("(&")?;
        for (name, wanted) in lists.iter().filter_map(|(name, list)| Some((name, list.as_ref()?))) {
            let all: String = wanted.iter().map(|value| format!("({name}={value})")).collect();
            match wanted.len() {
                1 => f.write_str(&all)?,
                _ => write!(f, "(|{all})")?,
            }
        }
        for (name, wanted) in FLAGS.iter().zip(self.flags) {
            match wanted {
                Some(true) => write!(f, "({name}=true)")?,
                Some(false) => write!(f, "(!({name}=true))")?,
                None => {}
            }
        }
        f.write_str(")")
    }
}

/// Values that an index can be asked for: not those that say what to leave out.
fn indexed(wanted: &Option<Vec<String>>) -> Option<&[String]> {
    let wanted = wanted.as_deref()?;
    (wanted.len() == 1 || wanted.iter().all(|w| !w.starts_with('!'))).then_some(wanted)
}

fn state(field: &str, value: &Value) -> Checked<Vec<String>> {
    params::string(field, value).map(|text| text.split(',').map(|s| s.trim().to_owned()).collect())
}

/// The filter of a lenient NAPI: what it knows, unchecked.
fn lenient(given: &Params) -> Filter {
    let list = |name: &str| given.get(name).and_then(params::elements);
    let mut filter = Filter {
        owner_uuid: list("owner_uuid"),
        belongs_to_uuid: list("belongs_to_uuid"),
        belongs_to_type: list("belongs_to_type"),
        nic_tag: list("nic_tag"),
        nic_tags_provided: list("nic_tags_provided"),
        network_uuid: list("network_uuid"),
        ..Filter::default()
    };
    for (flag, slot) in FLAGS.iter().zip(filter.flags.iter_mut()) {
        *slot = given.get(*flag).and_then(|value| params::boolean(flag, value).ok());
    }
    filter
}

fn strict(given: &Params, era: Era) -> Result<Filter, ApiError> {
    let mut filter = Filter::default();
    let mut errors = Vec::new();
    let mut strangers = Vec::new();
    for (name, value) in given {
        let mut set = |slot: &mut Option<Vec<String>>, checked: Checked<Vec<String>>| match checked
        {
            Ok(list) => *slot = Some(list),
            Err(error) => errors.push(error),
        };
        match name.as_str() {
            "owner_uuid" => set(&mut filter.owner_uuid, params::uuids(name, value)),
            "belongs_to_uuid" => set(&mut filter.belongs_to_uuid, params::uuids(name, value)),
            "network_uuid" => set(&mut filter.network_uuid, params::uuids(name, value)),
            "cn_uuid" if era.has_cn_filter() => {
                set(&mut filter.cn_uuid, params::uuids(name, value))
            }
            "belongs_to_type" => set(&mut filter.belongs_to_type, params::strings(name, value)),
            "nic_tag" => set(&mut filter.nic_tag, params::strings(name, value)),
            "nic_tags_provided" => set(&mut filter.nic_tags_provided, params::strings(name, value)),
            "state" if era.has_cn_filter() => set(&mut filter.state, state(name, value)),
            // The real process does not survive a repeated limit or offset.
            "limit" | "offset" if value.is_array() => return Err(ApiError::Died),
            "limit" => match params::limit(value) {
                Ok(limit) => filter.limit = Some(limit),
                Err(error) => errors.push(error),
            },
            "offset" => match params::offset(value) {
                Ok(offset) => filter.offset = offset,
                Err(error) => errors.push(error),
            },
            flag => {
                match FLAGS.iter().position(|f| *f == flag).and_then(|at| filter.flags.get_mut(at))
                {
                    Some(slot) => match params::boolean(flag, value) {
                        Ok(wanted) => *slot = Some(wanted),
                        Err(error) => errors.push(error),
                    },
                    None => strangers.push(name.clone()),
                }
            }
        }
    }
    if !strangers.is_empty() {
        errors.push(unknown(&strangers));
    }
    if !errors.is_empty() {
        return Err(ApiError::Invalid(errors));
    }
    let lists =
        [&filter.owner_uuid, &filter.belongs_to_uuid, &filter.network_uuid, &filter.cn_uuid];
    // The storage's filter language shows through.
    let is_broken =
        [&filter.belongs_to_type, &filter.state, &filter.nic_tag, &filter.nic_tags_provided]
            .into_iter()
            .flatten()
            .flatten()
            .any(|text| text.contains(['(', ')']));
    let is_empty = lists.iter().any(|list| list.as_ref().is_some_and(Vec::is_empty));
    if is_broken || is_empty {
        return Err(ApiError::Storage(format!("{filter} is an invalid filter")));
    }
    Ok(filter)
}

impl World {
    /// One page of NICs: chosen in the order of addresses, given back in any order.
    pub(super) fn list_nics(
        &mut self,
        given: &Params,
        repeat: bool,
        cap: usize,
    ) -> Result<Vec<Value>, ApiError> {
        let filter = if self.era.is_strict() { strict(given, self.era)? } else { lenient(given) };
        let offset = if repeat { 0 } else { filter.offset };
        let limit = filter.limit.unwrap_or(1000).min(cap);
        let rows: Vec<&NicRow> = self
            .nics
            .candidates(indexed(&filter.cn_uuid), indexed(&filter.belongs_to_uuid))
            .filter(|nic| filter.matches(nic))
            .skip(offset)
            .take(limit)
            .collect();
        if rows.iter().any(|nic| self.has_lost_network(nic)) {
            return Err(ApiError::Several(rows.len()));
        }
        let mut page: Vec<Value> = rows.into_iter().map(|nic| self.nic_json(nic)).collect();
        for at in (1..page.len()).rev() {
            let other = rand::RngExt::random_range(&mut self.rng, 0..=at);
            page.swap(at, other);
        }
        Ok(page)
    }
}
