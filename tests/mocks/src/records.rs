// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The store of a service that has one kind of record, kept by uuid: with fault rules, log and clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::faults::{Action, Canned, Door, Faults, Listed, Recorder, Service, bad};
use crate::restify;
use crate::router::{Answer, Router, Way};

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

    /// Lets time pass.
    pub(crate) fn advance(&self, by: Duration) {
        self.0.clock.advance(by);
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

    /// Puts a record in the place of the one that has its uuid.
    pub(crate) fn replace(&self, record: Record) {
        let uuid = record.get("uuid");
        if let Some(known) = self.held().iter_mut().find(|known| known.get("uuid") == uuid) {
            *known = record;
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
}

/// The doors `seed`, `dump` and `reset`, and those of the service's own.
fn side_door(keeper: &impl Keeper, request: &Request<Bytes>, what: &str) -> Door {
    Ok(Some(match (request.method(), what) {
        (&Method::POST, "seed") => {
            let records: Vec<Record> = serde_json::from_slice(request.body()).map_err(bad)?;
            records.into_iter().for_each(|record| keeper.seed(record));
            json!({})
        }
        (&Method::GET, "dump") => json!(keeper.records().all()),
        (&Method::POST, "reset") => {
            keeper.clear();
            json!({})
        }
        _ => return keeper.own_door(request, what),
    }))
}

/// A service whose state is its records alone.
pub(crate) trait Keeper: Clone + Send + Sync + 'static {
    /// What the header `server` says.
    const SERVER: &'static str;
    /// The headers that each answer of a route has.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];
    /// Its routes.
    const ROUTER: Router;
    /// The doors `seed`, `dump` and `reset`, as they are listed.
    const DOORS: &'static [Listed];

    fn records(&self) -> &Records;

    /// Adds a record.
    fn seed(&self, record: Record) {
        self.records().put(record);
    }

    /// Drops what is kept.
    fn clear(&self) {
        self.records().clear();
    }

    /// Answers at a door that only this service has.
    fn own_door(&self, _request: &Request<Bytes>, _what: &str) -> Door {
        Ok(None)
    }

    /// Answers a request that has a route; nothing if the process dies of it.
    fn operate(&self, way: &Way) -> Option<Answer>;

    /// Does what the service does before this answer leaves.
    fn before_answer(&self, _way: &Way, answer: Answer) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(answer))
    }
}

impl<T: Keeper> Service for T {
    const DOORS: &'static [Listed] = T::DOORS;

    fn parts(&self) -> (&Faults, &Recorder) {
        let inner = &self.records().0;
        (&inner.faults, &inner.log)
    }

    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        side_door(self, request, what)
    }

    fn canned(&self, request: &Request<Bytes>, answer: Canned<'_>) -> Response<Bytes> {
        restify::routed(request, T::SERVER, self.records().now_ms(), answer)
    }

    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        _: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        Box::pin(async move {
            let way = match T::ROUTER.way(request) {
                Ok(way) => way,
                Err(response) => return Some(*response),
            };
            let answer = self.before_answer(&way, self.operate(&way)?).await;
            let own = T::HEADERS.iter();
            let answer = own.fold(answer, |answer, (name, value)| answer.with(name, value));
            Some(answer.response(request, T::SERVER, self.records().now_ms()))
        })
    }
}
