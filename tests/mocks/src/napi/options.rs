// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a mock NAPI is set up.

use std::time::Duration;

use super::eras::Era;

/// How a mock NAPI is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The era it starts in.
    pub era: Era,
    /// Where its random choices (list order, generated addresses) start.
    pub seed: u64,
    /// Whether it answers 503 until told otherwise.
    pub initializing: bool,
    /// The user that owns the data centre.
    pub admin_uuid: String,
    /// Time between the check and the commit of every write.
    pub commit_delay: Duration,
    /// Time a list takes for every record on its page.
    pub record_cost: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            era: Era::Master,
            seed: 1,
            initializing: false,
            admin_uuid: "930896af-bf8c-48d4-885c-6573a94b1853".to_owned(),
            commit_delay: Duration::ZERO,
            record_cost: Duration::ZERO,
        }
    }
}

impl Options {
    /// The defaults in another era.
    pub fn era(era: Era) -> Self {
        Self { era, ..Self::default() }
    }
}
