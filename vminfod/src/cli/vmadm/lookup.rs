// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `lookup` and `get`: VMs as uuids or JSON. Pure.

use sdc_clients::vminfod::VmObject;
use serde_json::Value;

use super::filter::Filters;
use super::list::picked;
use super::nopt::Parsed;
use super::outcome::Failure;
use super::value::{lone_argument, pretty, text_form};

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
    pub fn new(parsed: &Parsed) -> Result<Lookup, Failure> {
        let filters = Filters::read(&parsed.operands).map_err(Failure::from)?;
        let output = parsed.text("output").map(str::to_owned);
        let json = parsed.flag("json").unwrap_or(false);
        if output.is_some() && !json {
            return Err(Failure::failed("Cannot specify -o without -j"));
        }
        if let Some(key) = filters.invalid_key() {
            return Err(Failure::failed(format!("Invalid lookup key: \"{key}\"")));
        }
        let unique = parsed.flag("unique").unwrap_or(false);
        Ok(Lookup { filters, output, json, unique })
    }

    /// The whole output.
    pub fn print(self, vms: Vec<VmObject>) -> Result<String, Failure> {
        let properties: Option<Vec<&str>> =
            self.output.as_deref().map(|output| output.split(',').collect());
        let vms = picked(self.filters, vms, properties.as_deref())?;
        if self.unique && vms.len() != 1 {
            let found = vms.len();
            return Err(Failure::failed(format!(
                "Requested unique lookup but found {found} results."
            )));
        }
        if self.json {
            let objects: Vec<VmObject> = vms.into_iter().map(|vm| vm.object).collect();
            return Ok(json_text(&objects));
        }
        let uuid = |object: &VmObject| object.get("uuid").and_then(text_form).unwrap_or_default();
        Ok(vms.iter().map(|vm| uuid(&vm.object) + "\n").collect())
    }
}

/// JSON as `get` and `lookup -j` print it.
pub fn json_text(value: &(impl serde::Serialize + ?Sized)) -> String {
    lone_argument(&pretty(value)) + "\n"
}

/// Returns true if `get` accepts the operand as a UUID.
pub fn is_uuid(text: &str) -> bool {
    let units: Vec<u16> = text.encode_utf16().collect();
    units.len() == 36 && [8, 13, 18, 23].iter().all(|at| units.get(*at) == Some(&u16::from(b'-')))
}

/// The object that `get` prints.
pub fn one(vm: VmObject) -> String {
    json_text(&Value::Object(vm))
}
