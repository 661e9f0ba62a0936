// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The reservation record: bucket `volapi_volumes_reservations`, key its uuid. It says that a VM that is
//! being made needs a volume of this name, which need not exist yet.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::script::show_time;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// In milliseconds since 1970.
    pub create_timestamp: i64,
    pub job_uuid: String,
    pub owner_uuid: String,
    pub uuid: String,
    pub vm_uuid: String,
    pub volume_name: String,
}

impl Reservation {
    /// Returns it as clients see it.
    pub fn shown(&self) -> Value {
        let mut shown = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        show_time(&mut shown);
        shown.into()
    }

    /// Returns true if it is of this owner and name.
    pub fn is_of(&self, owner: &str, name: &str) -> bool {
        self.owner_uuid == owner && self.volume_name == name
    }
}
