// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The open event streams, for `/status`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;
use tokio::time::Instant;

/// One open event stream.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The `User-Agent`. Empty if there was none: the shipped CLI needs a string.
    pub user_agent: String,
    /// When it connected.
    pub created: Instant,
    /// The same in wall-clock time.
    pub created_date: String,
}

/// All open event streams, by the uuid in their `ready` line.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Arc<Mutex<IndexMap<String, Listener>>>);

impl Listeners {
    /// Adds a stream; it is removed when the guard is dropped.
    pub fn add(&self, user_agent: String) -> Registered {
        let uuid = uuid::Uuid::new_v4().to_string();
        let listener =
            Listener { user_agent, created: Instant::now(), created_date: super::reply::now_iso() };
        self.lock().insert(uuid.clone(), listener);
        Registered { uuid, all: self.clone() }
    }

    /// Returns a copy of the list.
    pub fn list(&self) -> IndexMap<String, Listener> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, IndexMap<String, Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes its stream from the list when dropped.
#[derive(Debug)]
pub struct Registered {
    /// The stream's uuid.
    pub uuid: String,
    all: Listeners,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.all.lock().shift_remove(&self.uuid);
    }
}
