// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The engine in memory: the suite under paused time, and lost answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use store::{Bucket, Call, Error, Expect, Fault, Faults, Query, Store};

use crate::schemas::VOLUMES;
use crate::suite::suite;

async fn open() -> Option<(Store, ())> {
    Some((Store::in_memory().unwrap(), ()))
}

suite!(tokio::test(start_paused = true), open);

#[test]
fn it_agrees_with_a_map() {
    crate::model::agrees(64, open);
}

#[tokio::test(start_paused = true)]
async fn a_copy_has_what_was_there_and_goes_its_own_way() {
    let store = Store::in_memory().unwrap();
    let bucket = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    bucket.put("a", Expect::Absent, &json!({"name": "one"})).await.unwrap();
    let copy = store.copied().unwrap();
    bucket.put("a", Expect::Anything, &json!({"name": "two"})).await.unwrap();
    bucket.put("b", Expect::Absent, &json!({"name": "two"})).await.unwrap();
    let copied = Bucket::<Value>::open(&copy, VOLUMES).await.unwrap();
    assert_eq!(copied.get("a").await.unwrap().value, json!({"name": "one"}));
    let two = Query::all().with("name", "two");
    assert!(copied.find(two.clone()).await.unwrap().records.is_empty());
    assert_eq!(bucket.find(two).await.unwrap().records.len(), 2);
    copied.put("c", Expect::Absent, &json!({"name": "one"})).await.unwrap();
    assert_eq!(copied.find(Query::all().with("name", "one")).await.unwrap().records.len(), 2);
}

/// Takes the faults from a list.
#[derive(Debug, Default)]
struct Script(Mutex<VecDeque<(Call, Fault)>>);

impl Faults for Script {
    fn next(&self, call: Call) -> Fault {
        let mut script = self.0.lock().unwrap();
        match script.front() {
            Some((next, fault)) if *next == call => {
                let fault = *fault;
                script.pop_front();
                fault
            }
            _ => Fault::None,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_be_lost_before_and_after_the_write() {
    let store = Store::in_memory().unwrap();
    let script = Arc::new(Script::default());
    let faulty = Bucket::<Value>::open(&store.with_faults(script.clone()), VOLUMES).await.unwrap();
    let bucket = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    let next = |call, fault| script.0.lock().unwrap().push_back((call, fault));

    next(Call::Commit, Fault::Before);
    let error = faulty.put("a", Expect::Absent, &json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.is_away());
    assert!(matches!(bucket.get("a").await.unwrap_err(), Error::NotFound { .. }));

    next(Call::Commit, Fault::After);
    let error = faulty.put("a", Expect::Absent, &json!({})).await.unwrap_err();
    assert!(matches!(error, Error::UnknownOutcome { .. }) && error.is_away());
    assert!(bucket.get("a").await.is_ok());

    next(Call::Read, Fault::After);
    assert!(faulty.find(Query::all()).await.unwrap_err().is_away());
    next(Call::Commit, Fault::After);
    let refused = faulty.put("a", Expect::Absent, &json!({})).await.unwrap_err();
    assert!(matches!(refused, Error::EtagConflict { .. }), "a write that was refused is known");

    next(Call::Commit, Fault::Never);
    let never = faulty.delete("a", Expect::Anything);
    assert!(tokio::time::timeout(Duration::from_secs(86_400), never).await.is_err());
    assert!(bucket.get("a").await.is_ok());
}
