// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes under `/_mock/` that only this mock has: seed, era and dump, for the process that drives it.

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use super::seed::SeedFile;
use super::store::Store;
use crate::faults::{Door, Listed, bad};

/// The routes, as they are listed.
pub(super) const DOORS: &[Listed] = &[
    ("POST", "seed", "adds records: {nic_tags, networks, network_pools, nics}"),
    ("GET", "dump", "the era and every NIC"),
    ("POST", "reset", "drops all records; fault rules and requests stay"),
    ("GET", "era", "the era that is imitated"),
    ("PUT", "era", "another era from now on: {era}; the records stay"),
    ("PUT", "initializing", "answers 503 while {initializing: true}"),
];

/// Answers a request below `/_mock/`.
pub(super) fn handle(store: &Store, request: &Request<Bytes>, what: &str) -> Door {
    Ok(Some(match (request.method(), what) {
        (&Method::POST, "seed") => {
            let seed: SeedFile = serde_json::from_slice(request.body()).map_err(bad)?;
            store.seed(&seed).map_err(|error| (422, error))?;
            json!({ "nics": store.nics().len() })
        }
        (&Method::GET, "era") => json!({ "era": store.era() }),
        (&Method::PUT, "era") => {
            let body: Value = serde_json::from_slice(request.body()).map_err(bad)?;
            let era = serde_json::from_value(body["era"].clone()).map_err(bad)?;
            store.set_era(era);
            json!({ "era": era })
        }
        (&Method::PUT, "initializing") => {
            let body: Value = serde_json::from_slice(request.body()).map_err(bad)?;
            store.set_initializing(body["initializing"] == true);
            body
        }
        (&Method::GET, "dump") => json!({ "era": store.era(), "nics": store.nics() }),
        (&Method::POST, "reset") => {
            store.reset();
            json!({})
        }
        _ => return Ok(None),
    }))
}
