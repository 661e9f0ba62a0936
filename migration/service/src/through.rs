// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who asks, and through which program. Only people read it: what a caller may do is decided elsewhere.

use daemon::http::Sender;
use http::HeaderMap;

use migration_core::intent::Asker;
use migration_core::time::Time;

/// What a request reveals of its sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Through {
    pub by: Option<String>,
    pub program: Option<String>,
}

impl Through {
    /// Reads the header.
    pub fn of(headers: &HeaderMap) -> Through {
        let Sender { by, program } = Sender::of(headers);
        Through { by, program }
    }

    /// Returns a part of this service that asks by itself.
    pub fn itself(why: &str) -> Through {
        Through { by: Some("migration-service".to_owned()), program: Some(why.to_owned()) }
    }

    /// Returns this for a record; the account, if one asks, stands for the person.
    pub fn asker(&self, account: Option<uuid::Uuid>, at: Time) -> Asker {
        let by = account.map(|account| account.to_string()).or_else(|| self.by.clone());
        Asker { by, program: self.program.clone(), at }
    }
}
