// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The store of a service that has one kind of record, kept by uuid: with fault rules, log and clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::faults::{Action, Door, Faults, Listed, Recorder, Service, bad};
use crate::restify;

pub(crate) type Record = Map<String, Value>;

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they were added.
    records: Mutex<Vec<Record>>,
    clock: Clock,
    faults: Faults,
    log: Recorder,
}

/// The records of one mock, with its rules and log. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records(Arc<Inner>);

impl Records {
    pub(crate) fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    fn held(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record, or changes the fields of the one that has its uuid. One without a uuid is ignored.
    pub(crate) fn put(&self, record: Record) {
        let Some(uuid) = record.get("uuid").filter(|uuid| uuid.is_string()) else { return };
        let mut records = self.held();
        match records.iter_mut().find(|known| known.get("uuid") == Some(uuid)) {
            Some(known) => known.extend(record),
            None => records.push(record),
        }
    }

    pub(crate) fn get(&self, uuid: &str) -> Option<Record> {
        self.held().iter().find(|it| it.get("uuid").is_some_and(|own| own == uuid)).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Record> {
        self.held().clone()
    }

    pub(crate) fn clear(&self) {
        self.held().clear();
    }

    /// The doors `seed`, `dump` and `reset`.
    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        Ok(Some(match (request.method(), what) {
            (&Method::POST, "seed") => {
                let records: Vec<Record> = serde_json::from_slice(request.body()).map_err(bad)?;
                records.into_iter().for_each(|record| self.put(record));
                json!({})
            }
            (&Method::GET, "dump") => json!(self.all()),
            (&Method::POST, "reset") => {
                self.clear();
                json!({})
            }
            _ => return Ok(None),
        }))
    }
}

/// A service whose state is its records alone.
pub(crate) trait Keeper: Clone + Send + Sync + 'static {
    /// What the header `server` says.
    const SERVER: &'static str;
    /// The doors `seed`, `dump` and `reset`, as they are listed.
    const DOORS: &'static [Listed];

    fn records(&self) -> &Records;

    /// Returns the status and the body of an answer.
    fn operate(&self, request: &Request<Bytes>) -> (u16, Value);
}

impl<T: Keeper> Service for T {
    const DOORS: &'static [Listed] = T::DOORS;

    fn parts(&self) -> (&Faults, &Recorder) {
        let inner = &self.records().0;
        (&inner.faults, &inner.log)
    }

    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        self.records().side_door(request, what)
    }

    fn canned(
        &self,
        request: &Request<Bytes>,
        status: u16,
        body: Option<&Value>,
    ) -> Response<Bytes> {
        restify::routed(request, T::SERVER, self.records().now_ms(), (status, body))
    }

    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        _: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        let (status, body) = self.operate(request);
        Box::pin(std::future::ready(Some(self.canned(request, status, Some(&body)))))
    }
}

/// 404 with this message.
pub(crate) fn not_found(message: &str) -> (u16, Value) {
    (404, json!({ "code": "ResourceNotFound", "message": message }))
}
