// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two outages of NAPI's storage, as fault rules. `/ping` stays healthy in both.

use serde_json::json;

use crate::faults::{Action, Rule};

/// The routes that need the storage.
const STORED: [&str; 4] = ["/nics*", "/networks*", "/network_pools*", "/search/*"];

/// The database is gone and Moray answers: 500 at once for the first requests, then each takes 5 s.
pub fn database_gone() -> Vec<Rule> {
    let answer = |message: &str| {
        let message = format!("moray client: request failed: server error: {message}");
        Action::Status { status: 500, body: Some(json!({ "message": message })), retry_after: None }
    };
    let rules = STORED.into_iter().flat_map(|path| {
        let rule = |action| Rule { path: Some(path.to_owned()), ..Rule::any(action) };
        [
            rule(answer("Connection terminated unexpectedly")).times(3),
            rule(Action::Delay { ms: 5000 }).after(3),
            rule(answer("unable to acquire backend connection in 5000 ms")).after(3),
        ]
    });
    rules.collect()
}

/// Moray hangs: nothing is answered for so long, and what was sent is committed then.
pub fn storage_hangs(ms: u64) -> Vec<Rule> {
    let rule = |path: &str| Rule { path: Some(path.to_owned()), ..Rule::any(Action::Hang { ms }) };
    STORED.map(rule).to_vec()
}
