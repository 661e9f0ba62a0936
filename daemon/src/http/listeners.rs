// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who listens to an event stream right now, as a status page tells it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;
use tokio::time::Instant;

/// One open event stream.
#[derive(Clone, Debug)]
pub struct Listener {
    /// As the client names itself; the shipped CLI wants a text, so a silent client has the empty one.
    pub user_agent: String,
    /// When it connected.
    pub created: Instant,
    /// The same on the wall clock, as text.
    pub created_date: String,
}

/// All of them, by the uuid sent in their `ready` line.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Arc<Mutex<IndexMap<String, Listener>>>);

impl Listeners {
    /// Enters one; it leaves when the guard is dropped.
    pub fn enter(&self, user_agent: String) -> Entered {
        let uuid = uuid::Uuid::new_v4().to_string();
        let listener =
            Listener { user_agent, created: Instant::now(), created_date: super::now_iso() };
        self.lock().insert(uuid.clone(), listener);
        Entered { uuid, all: self.clone() }
    }

    /// A copy of the list.
    pub fn list(&self) -> IndexMap<String, Listener> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, IndexMap<String, Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a listener in the list.
#[derive(Debug)]
pub struct Entered {
    /// Its uuid.
    pub uuid: String,
    all: Listeners,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.all.lock().shift_remove(&self.uuid);
    }
}
