// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `list`: VMs as lines. Pure.

use daemon::cli::screen::visible;
use sdc_clients::vminfod::VmObject;
use serde_json::Value;

use super::fields::{self, Column};
use super::filter::Filters;
use super::nopt::Parsed;
use super::outcome::Failure;
use super::sort::{SortKey, sort};
use super::value::{lone_argument, text_form, trim_end, truthy, units};
use super::vm::Vm;

const DEFAULT_ORDER: &str = "uuid,type,ram,state,alias";
const DEFAULT_SORT: &str = "ram,uuid";

/// A listing with validated filter keys.
#[derive(Debug)]
pub struct Listing {
    filters: Filters,
    order: String,
    sort: String,
    parsable: bool,
    header: bool,
}

impl Listing {
    /// A listing of all VMs with these columns and this order; `None` is the default.
    pub fn all(order: Option<&str>, sort: Option<&str>, parsable: bool, header: bool) -> Listing {
        Listing {
            filters: Filters::default(),
            order: order.unwrap_or(DEFAULT_ORDER).to_owned(),
            sort: sort.unwrap_or(DEFAULT_SORT).to_owned(),
            parsable,
            header,
        }
    }

    /// Validates the arguments.
    pub fn new(parsed: &Parsed) -> Result<Listing, Failure> {
        let filters = Filters::read(&parsed.operands).map_err(Failure::from)?;
        let order = parsed.text("order").unwrap_or(DEFAULT_ORDER).to_owned();
        let sort = parsed.text("sortby").unwrap_or(DEFAULT_SORT).to_owned();
        if let Some(key) = filters.invalid_key() {
            return Err(Failure::failed(format!("Invalid filter key: \"{key}\"")));
        }
        for (list, what) in [(&order, "order"), (&sort, "sort")] {
            if let Some(name) = list.split(',').find(|name| fields::is_wildcard(name)) {
                return Err(Failure::failed(format!("Invalid {what} key: \"{name}\"")));
            }
        }
        let parsable = parsed.flag("parsable").unwrap_or(false);
        let header = parsed.flag("header").unwrap_or(!parsable);
        Ok(Listing { filters, order, sort, parsable, header })
    }

    /// The whole output.
    pub fn print(self, vms: Vec<VmObject>) -> Result<String, Failure> {
        let (parsable, header) = (self.parsable, self.header);
        let (columns, vms) = self.chosen(vms)?;
        let shape = Shape { columns: &columns, parsable };
        let mut text = String::new();
        if header {
            shape.line(&mut text, columns.iter().map(|column| column.header.clone()));
        }
        for vm in &vms {
            let shown = columns.iter().map(|column| shown(column.of(vm), parsable));
            shape.line(&mut text, shown);
        }
        Ok(text)
    }

    /// The listed VMs as objects with only the listed properties.
    pub fn objects(self, vms: Vec<VmObject>) -> Result<Vec<VmObject>, Failure> {
        Ok(self.chosen(vms)?.1.into_iter().map(|vm| vm.object).collect())
    }

    /// The columns, and the filtered and sorted VMs.
    fn chosen(self, vms: Vec<VmObject>) -> Result<(Vec<Column>, Vec<Vm>), Failure> {
        let mut keys = Vec::new();
        for key in self.sort.split(',') {
            let unknown = || Failure::failed(format!("invalid sort field: {key}"));
            keys.push(SortKey::read(key).ok_or_else(unknown)?);
        }
        let mut columns = Vec::new();
        for name in self.order.split(',') {
            let unknown = || Failure::failed(format!("invalid order field: {name}"));
            columns.push(Column::named(name).ok_or_else(unknown)?);
        }
        let properties: Vec<&str> = columns.iter().map(Column::property).collect();
        let vms = sort(picked(self.filters, vms, Some(&properties))?, &keys);
        Ok((columns, vms))
    }
}

/// Objects as JSON.
pub fn json(vms: &[VmObject]) -> String {
    super::value::pretty(vms) + "\n"
}

/// The VMs that match the filters, reduced to `properties` if given.
pub fn picked(
    filters: Filters,
    vms: Vec<VmObject>,
    properties: Option<&[&str]>,
) -> Result<Vec<Vm>, Failure> {
    let mut picked = Vec::new();
    if vms.is_empty() {
        // As in the shipped program, an invalid pattern is no error if there are no VMs.
        return Ok(picked);
    }
    let picker = filters.ready().map_err(Failure::from)?;
    for vm in vms.into_iter().map(Vm::new) {
        if !picker.picks(&vm) {
            continue;
        }
        match properties {
            Some(properties) => picked.extend(vm.project(properties)),
            None => picked.push(vm),
        }
    }
    Ok(picked)
}

struct Shape<'a> {
    columns: &'a [Column],
    parsable: bool,
}

impl Shape<'_> {
    fn line(&self, text: &mut String, cells: impl Iterator<Item = String>) {
        let mut line = String::new();
        for (n, (cell, column)) in cells.zip(self.columns).enumerate() {
            if n > 0 {
                line.push_str(if self.parsable { ":" } else { "  " });
            }
            // A name with a line's end in it would forge a row.
            let cell = visible(&cell);
            line.push_str(&cell);
            if !self.parsable {
                line.extend(std::iter::repeat_n(' ', column.width.saturating_sub(units(&cell))));
            }
        }
        text.push_str(&lone_argument(trim_end(&line)));
        text.push('\n');
    }
}

fn shown(value: Option<&Value>, parsable: bool) -> String {
    let none = if parsable { "" } else { "-" };
    match value {
        // Zero is shown; other falsy values are not.
        Some(number @ Value::Number(_)) => text_form(number).unwrap_or_default(),
        Some(value) if truthy(Some(value)) => text_form(value).unwrap_or_default(),
        _ => none.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_forges_no_row() {
        let vm = serde_json::json!({"uuid": "u", "brand": "lx", "alias": "a\nu2:OS\u{202e}"});
        for (parsable, text) in [
            (true, "u:a\\u000au2:OS\\u202e\n"),
            (false, "u                                     a\\u000au2:OS\\u202e\n"),
        ] {
            let listing = Listing::all(Some("uuid,alias"), None, parsable, false);
            assert_eq!(listing.print(vec![vm.as_object().unwrap().clone()]).unwrap(), text);
        }
    }
}
