// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `lookup` and `get`: VMs as uuids or JSON. Pure.

use sdc_clients::vminfod::VmObject;
use serde_json::Value;

use super::filter::Filters;
use super::list::picked;
use super::options::LookupOptions;
use super::outcome::Failure;
use super::value::{lone_argument, pretty, text_form};
use super::vm::Vm;

/// A look-up with validated filter keys.
#[derive(Debug)]
pub struct Lookup {
    filters: Filters,
    output: Option<String>,
    json: bool,
    unique: bool,
}

impl Lookup {
    /// Validates the arguments.
    pub fn new(options: LookupOptions) -> Result<Lookup, Failure> {
        let LookupOptions { json, unique, output, .. } = options;
        let filters = Filters::read(&options.filters)?;
        if output.is_some() && !json {
            return Err(Failure::failed("Cannot specify -o without -j"));
        }
        if let Some(key) = filters.invalid_key() {
            return Err(Failure::failed(format!("Invalid lookup key: \"{key}\"")));
        }
        Ok(Lookup { filters, output, json, unique })
    }

    /// The whole output.
    pub fn print(self, vms: Vec<VmObject>) -> Result<String, Failure> {
        let mut vms = picked(self.filters, vms)?;
        if let Some(output) = &self.output {
            let properties: Vec<&str> = output.trim().split(',').collect();
            vms = vms.into_iter().filter_map(|vm| vm.project(&properties)).collect();
        }
        if self.unique && vms.len() != 1 {
            let why = format!("Requested unique lookup but found {} results.", vms.len());
            return Err(Failure::Failed(why));
        }
        if self.json {
            return Ok(json_text(&vms.into_iter().map(|vm| vm.object).collect()));
        }
        let uuid = |vm: &Vm| vm.object.get("uuid").and_then(text_form).unwrap_or_default() + "\n";
        Ok(vms.iter().map(uuid).collect())
    }
}

/// JSON as `get` and `lookup -j` print it.
pub fn json_text(value: &Value) -> String {
    lone_argument(&pretty(value)) + "\n"
}

/// Returns true if `get` accepts the operand as a UUID.
pub fn is_uuid(text: &str) -> bool {
    let units: Vec<u16> = text.encode_utf16().collect();
    units.len() == 36 && [8, 13, 18, 23].iter().all(|at| units.get(*at) == Some(&u16::from(b'-')))
}
