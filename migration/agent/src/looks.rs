// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The observations that were answered for before they were done.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use migration_core::protocol::{Observe, Observed};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::failed::Failed;

/// What comes of an observation. Dropping it ends the observation.
pub type Reading = oneshot::Receiver<Result<Observed, Failed>>;

/// One for each migration at most.
#[derive(Default)]
pub struct Looks(Mutex<HashMap<Uuid, (Observe, Reading)>>);

impl Looks {
    /// Returns the reading of the same question; that of another one ends.
    pub fn take(&self, asked: &Observe) -> Option<Reading> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, reading) = all.remove(&asked.about.migration).filter(|(of, _)| of == asked)?;
        Some(reading)
    }

    /// Keeps a reading until it is asked for again.
    pub fn keep(&self, asked: Observe, reading: Reading) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(asked.about.migration, (asked, reading));
    }
}
