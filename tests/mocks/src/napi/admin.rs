// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes under `/_mock/`: fault rules, log, seed, era and dump, for the process that drives
//! the mock. They are not part of NAPI.

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Value, json};

use super::answers::build;
use super::seed::SeedFile;
use super::store::Store;
use crate::faults::Rule;

/// Answers a request below `/_mock/`.
pub(super) fn handle(store: &Store, request: &Request<Bytes>) -> Response<Bytes> {
    let (status, body) = match run(store, request) {
        Ok(body) => (200, body),
        Err((status, message)) => (status, json!({ "message": message })),
    };
    build(request.method(), status, Some(&body))
}

fn run(store: &Store, request: &Request<Bytes>) -> Result<Value, (u16, String)> {
    let what = request.uri().path().trim_start_matches("/_mock/");
    let bad = |error: serde_json::Error| (400, error.to_string());
    match (request.method(), what) {
        (&Method::GET, "faults") => {
            let rules = store.faults().list();
            Ok(rules.iter().map(|(rule, seen)| json!({ "rule": rule, "seen": seen })).collect())
        }
        (&Method::POST, "faults") => {
            let rules: Vec<Rule> = match request.body().first() {
                Some(b'[') => serde_json::from_slice(request.body()).map_err(bad)?,
                _ => vec![serde_json::from_slice(request.body()).map_err(bad)?],
            };
            let added = rules.len();
            rules.into_iter().for_each(|rule| store.faults().add(rule));
            Ok(json!({ "added": added }))
        }
        (&Method::DELETE, "faults") => {
            store.faults().clear();
            Ok(json!({}))
        }
        (&Method::GET, "requests") => serde_json::to_value(store.log().all()).map_err(bad),
        (&Method::DELETE, "requests") => {
            store.log().clear();
            Ok(json!({}))
        }
        (&Method::POST, "seed") => {
            let seed: SeedFile = serde_json::from_slice(request.body()).map_err(bad)?;
            store.seed(&seed).map_err(|error| (422, error))?;
            Ok(json!({ "nics": store.nics().len() }))
        }
        (&Method::GET, "era") => Ok(json!({ "era": store.era() })),
        (&Method::PUT, "era") => {
            let body: Value = serde_json::from_slice(request.body()).map_err(bad)?;
            let era = serde_json::from_value(body["era"].clone()).map_err(bad)?;
            store.set_era(era);
            Ok(json!({ "era": era }))
        }
        (&Method::PUT, "initializing") => {
            let body: Value = serde_json::from_slice(request.body()).map_err(bad)?;
            store.set_initializing(body["initializing"] == true);
            Ok(body)
        }
        (&Method::GET, "dump") => Ok(json!({ "era": store.era(), "nics": store.nics() })),
        (&Method::POST, "reset") => {
            store.reset();
            Ok(json!({}))
        }
        (method, _) => Err((404, format!("no such side door: {method} {}", request.uri().path()))),
    }
}
