// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `list`: VMs as lines. Pure.

use daemon::cli::Layout;
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
    layout: Layout,
}

impl Listing {
    /// A listing of all VMs.
    pub fn all(layout: Layout) -> Listing {
        Listing { filters: Filters::default(), layout }
    }

    /// Validates the arguments.
    pub fn new(parsed: &Parsed) -> Result<Listing, Failure> {
        let filters = Filters::read(&parsed.operands)?;
        if let Some(key) = filters.invalid_key() {
            return Err(Failure::failed(format!("Invalid filter key: \"{key}\"")));
        }
        let text = |name| parsed.text(name).map(str::to_owned);
        let (columns, sort, parsable) = (text("order"), text("sortby"), parsed.has("parsable"));
        for (list, what) in [(&columns, "order"), (&sort, "sort")] {
            let mut names = list.iter().flat_map(|list| list.split(','));
            if let Some(name) = names.find(|name| fields::is_wildcard(name)) {
                return Err(Failure::failed(format!("Invalid {what} key: \"{name}\"")));
            }
        }
        let no_header = !parsed.flag("header").unwrap_or(!parsable);
        Ok(Listing { filters, layout: Layout { no_header, parsable, columns, sort, json: false } })
    }

    /// The same as JSON objects, which vmadm does not print.
    pub fn as_json(self) -> Listing {
        Listing { layout: Layout { json: true, ..self.layout }, ..self }
    }

    /// The whole output: the filtered VMs, sorted.
    pub fn print(self, vms: Vec<VmObject>) -> Result<String, Failure> {
        let Layout { no_header, parsable, columns, sort: by, json } = self.layout;
        let unknown = |what, name| move || Failure::failed(format!("invalid {what} field: {name}"));
        let key = |name| SortKey::read(name).ok_or_else(unknown("sort", name));
        let by = by.as_deref().unwrap_or(DEFAULT_SORT).split(',');
        let keys = by.map(key).collect::<Result<Vec<_>, _>>()?;
        let column = |name| Column::named(name).ok_or_else(unknown("order", name));
        let columns = columns.as_deref().unwrap_or(DEFAULT_ORDER).split(',');
        let columns = columns.map(column).collect::<Result<Vec<_>, _>>()?;
        let properties: Vec<&str> = columns.iter().map(Column::property).collect();
        let vms = sort(picked(self.filters, vms, Some(&properties))?, &keys);
        if json {
            return Ok(pretty(&vms.into_iter().map(|vm| vm.object).collect()) + "\n");
        }
        let head = columns.iter().map(|column| column.header.clone()).collect();
        let head = (!no_header).then_some(head);
        let row = |vm: &Vm| columns.iter().map(|column| shown(column.of(vm), parsable)).collect();
        let lines = head.into_iter().chain(vms.iter().map(row));
        Ok(lines.map(|cells| line(cells, &columns, parsable)).collect())
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
            let columns = Some("uuid,alias".to_owned());
            let layout = Layout { columns, parsable, no_header: true, ..Layout::default() };
            assert_eq!(
                Listing::all(layout).print(vec![vm.as_object().unwrap().clone()]).unwrap(),
                text
            );
        }
    }
}
