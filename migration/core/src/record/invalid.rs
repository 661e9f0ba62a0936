// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is wrong with a record that cannot be read.

use std::fmt;

use sdc_clients::quoted;

/// The faults of a record, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub Vec<Fault>);

/// One fault; the field as a path, such as `progress_history[2].phase`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The field is of another type, or no value that it may have.
    Field(String),
    /// The field must be there.
    Missing(String),
    /// The record is no JSON object.
    NotAnObject,
}

impl std::error::Error for Invalid {}

/// Writes the sentence of the deployed service, which knows wrong fields only.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.0.iter().map(Fault::to_string).collect();
        write!(f, "Invalid migration record: {}", faults.join(","))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Field(name) => write!(f, "invalid field {}", quoted(name)),
            Fault::Missing(name) => write!(f, "missing field {}", quoted(name)),
            Fault::NotAnObject => f.write_str("not an object"),
        }
    }
}
