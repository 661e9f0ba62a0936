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
use super::value::{lone_argument, pretty, text_form, trim_end, truthy, units};
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
    json: bool,
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
            json: false,
        }
    }

    /// Validates the arguments.
    pub fn new(parsed: &Parsed) -> Result<Listing, Failure> {
        let filters = Filters::read(&parsed.operands)?;
        if let Some(key) = filters.invalid_key() {
            return Err(Failure::failed(format!("Invalid filter key: \"{key}\"")));
        }
        let parsable = parsed.has("parsable");
        let header = parsed.flag("header").unwrap_or(!parsable);
        let all = Listing::all(parsed.text("order"), parsed.text("sortby"), parsable, header);
        for (list, what) in [(&all.order, "order"), (&all.sort, "sort")] {
            if let Some(name) = list.split(',').find(|name| fields::is_wildcard(name)) {
                return Err(Failure::failed(format!("Invalid {what} key: \"{name}\"")));
            }
        }
        Ok(Listing { filters, ..all })
    }

    /// The same as JSON objects, which vmadm does not print.
    pub fn as_json(self) -> Listing {
        Listing { json: true, ..self }
    }

    /// The whole output.
    pub fn print(self, vms: Vec<VmObject>) -> Result<String, Failure> {
        let (parsable, header, json) = (self.parsable, self.header, self.json);
        let (columns, vms) = self.chosen(vms)?;
        if json {
            return Ok(pretty(&vms.into_iter().map(|vm| vm.object).collect()) + "\n");
        }
        let head = header.then(|| columns.iter().map(|column| column.header.clone()).collect());
        let row = |vm: &Vm| columns.iter().map(|column| shown(column.of(vm), parsable)).collect();
        let lines = head.into_iter().chain(vms.iter().map(row));
        Ok(lines.map(|cells| line(cells, &columns, parsable)).collect())
    }

    /// The columns, and the filtered and sorted VMs.
    fn chosen(self, vms: Vec<VmObject>) -> Result<(Vec<Column>, Vec<Vm>), Failure> {
        let unknown = |what, name| move || Failure::failed(format!("invalid {what} field: {name}"));
        let key = |name| SortKey::read(name).ok_or_else(unknown("sort", name));
        let keys = self.sort.split(',').map(key).collect::<Result<Vec<_>, _>>()?;
        let column = |name| Column::named(name).ok_or_else(unknown("order", name));
        let columns = self.order.split(',').map(column).collect::<Result<Vec<_>, _>>()?;
        let properties: Vec<&str> = columns.iter().map(Column::property).collect();
        let vms = sort(picked(self.filters, vms, Some(&properties))?, &keys);
        Ok((columns, vms))
    }
}

/// The VMs that match the filters, reduced to `properties` if given.
pub fn picked(
    filters: Filters,
    vms: Vec<VmObject>,
    properties: Option<&[&str]>,
) -> Result<Vec<Vm>, Failure> {
    if vms.is_empty() {
        // As in the shipped program, an invalid pattern is no error if there are no VMs.
        return Ok(Vec::new());
    }
    let picker = filters.ready()?;
    let picked = vms.into_iter().map(Vm::new).filter(|vm| picker.picks(vm));
    Ok(match properties {
        Some(properties) => picked.filter_map(|vm| vm.project(properties)).collect(),
        None => picked.collect(),
    })
}

/// A line of the listing.
fn line(cells: Vec<String>, columns: &[Column], parsable: bool) -> String {
    // A name with a line's end in it would forge a row.
    let cells = cells.iter().map(|cell| visible(cell));
    let line = if parsable {
        cells.collect::<Vec<_>>().join(":")
    } else {
        let padded = cells.zip(columns).map(|(cell, column)| {
            let pad = " ".repeat(column.width.saturating_sub(units(&cell)));
            cell + &pad
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    lone_argument(trim_end(&line)) + "\n"
}

fn shown(value: Option<&Value>, parsable: bool) -> String {
    // Zero is shown; other falsy values are not.
    let counts = value.filter(|value| value.is_number() || truthy(Some(value)));
    let none = if parsable { "" } else { "-" };
    counts.and_then(text_form).unwrap_or_else(|| none.to_owned())
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
