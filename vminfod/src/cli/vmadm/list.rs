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
use super::options::ListOptions;
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
    /// A listing of the VMs that match the filters.
    pub fn of(layout: Layout, filters: &[String]) -> Result<Listing, Failure> {
        let filters = Filters::read(filters)?;
        match filters.invalid_key() {
            Some(key) => Err(Failure::failed(format!("Invalid filter key: \"{key}\""))),
            None => Ok(Listing { filters, layout }),
        }
    }

    /// Validates the arguments; `json` prints objects, which vmadm does not.
    pub fn new(options: ListOptions, json: bool) -> Result<Listing, Failure> {
        let ListOptions { parsable, no_header, header, order, sortby, filters, .. } = options;
        let trimmed = |list: Option<String>| list.map(|list| list.trim().to_owned());
        let (columns, sort) = (trimmed(order), trimmed(sortby));
        let no_header = !header && (no_header || parsable);
        let listing = Listing::of(
            Layout { no_header, parsable, columns, sort, json, within: None },
            &filters,
        )?;
        for (list, what) in [(&listing.layout.columns, "order"), (&listing.layout.sort, "sort")] {
            let mut names = list.iter().flat_map(|list| list.split(','));
            if let Some(name) = names.find(|name| fields::is_wildcard(name)) {
                return Err(Failure::failed(format!("Invalid {what} key: \"{name}\"")));
            }
        }
        Ok(listing)
    }

    /// The matching VMs, whole.
    pub fn objects(self, vms: Vec<VmObject>) -> Result<Value, Failure> {
        Ok(picked(self.filters, vms)?.into_iter().map(|vm| vm.object).collect())
    }

    /// The whole output: the filtered VMs, sorted.
    pub fn print(self, vms: Vec<VmObject>) -> Result<String, Failure> {
        let Layout { no_header, parsable, columns, sort: by, json, within: _ } = self.layout;
        let unknown = |what, name| move || Failure::failed(format!("invalid {what} field: {name}"));
        let key = |name| SortKey::read(name).ok_or_else(unknown("sort", name));
        let by = by.as_deref().unwrap_or(DEFAULT_SORT).split(',');
        let keys = by.map(key).collect::<Result<Vec<_>, _>>()?;
        let column = |name| Column::named(name).ok_or_else(unknown("order", name));
        let columns = columns.as_deref().unwrap_or(DEFAULT_ORDER).split(',');
        let columns = columns.map(column).collect::<Result<Vec<_>, _>>()?;
        let properties: Vec<&str> = columns.iter().map(Column::property).collect();
        let mut vms = picked(self.filters, vms)?;
        sort(&mut vms, &keys, &properties);
        let vms: Vec<Vm> = vms.into_iter().filter_map(|vm| vm.project(&properties)).collect();
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

/// The VMs that match the filters.
pub fn picked(filters: Filters, vms: Vec<VmObject>) -> Result<Vec<Vm>, Failure> {
    if vms.is_empty() {
        // As in the shipped program, an invalid pattern is no error if there are no VMs.
        return Ok(Vec::new());
    }
    let picker = filters.ready()?;
    Ok(vms.into_iter().map(Vm::new).filter(|vm| picker.picks(vm)).collect())
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
    use crate::cli::vmadm::options::parse;

    #[test]
    fn white_space_around_columns_and_keys_counts_for_nothing() {
        let text = |text: &str| Some(text.to_owned());
        let line = ["-o", "  uuid,alias ", "-s", " -ram\t"].map(str::to_owned);
        let options = parse(&line).unwrap();
        let Layout { columns, sort, .. } = Listing::new(options, false).unwrap().layout;
        assert_eq!((columns, sort), (text("uuid,alias"), text("-ram")));
    }

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
                Listing::of(layout, &[])
                    .unwrap()
                    .print(vec![vm.as_object().unwrap().clone()])
                    .unwrap(),
                text
            );
        }
    }
}
