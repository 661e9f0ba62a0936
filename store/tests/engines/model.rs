// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whatever is asked of a store, it answers as a map would.

use std::collections::BTreeMap;
use std::future::Future;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use store::{Batch, Bucket, Error, Etag, Expect, Query, Store};

use crate::schemas::VOLUMES;

#[derive(Debug, Clone)]
struct Write {
    key: u8,
    expect: u8,
    record: Option<(u8, u8)>,
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Write>),
    Find { owner: Option<u8>, is_by_size: bool, is_descending: bool, limit: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0u8..5, 0u8..4, proptest::option::of((0u8..3, 0u8..4)));
    let write = write.prop_map(|(key, expect, record)| Write { key, expect, record });
    let find = (proptest::option::of(0u8..3), any::<bool>(), any::<bool>(), 1usize..6);
    prop_oneof![
        3 => proptest::collection::vec(write, 1..4).prop_map(Step::Commit),
        1 => find.prop_map(|(owner, is_by_size, is_descending, limit)| Step::Find {
            owner, is_by_size, is_descending, limit
        }),
    ]
}

/// Checks that the engine agrees with the model, in so many runs.
pub fn agrees<F, G>(cases: u32, open: impl Fn() -> F)
where
    F: Future<Output = Option<(Store, G)>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&proptest::collection::vec(step(), 1..40), |steps| {
            runtime.block_on(async {
                if let Some((store, _guard)) = open().await {
                    run(store, steps).await;
                }
            });
            Ok(())
        })
        .unwrap();
}

/// Key → etag, record; and all etags that ever were.
#[derive(Default)]
struct Model {
    records: BTreeMap<String, (Etag, Value)>,
    seen: Vec<Etag>,
}

async fn run(store: Store, steps: Vec<Step>) {
    let bucket = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Commit(mut writes) => {
                writes.sort_by_key(|write| write.key);
                writes.dedup_by_key(|write| write.key);
                commit(&store, &bucket, &mut model, &writes).await;
            }
            Step::Find { owner, is_by_size, is_descending, limit } => {
                let mut query = Query::all().limit(limit);
                if let Some(owner) = owner {
                    query = query.with("owner", owner);
                }
                if is_by_size {
                    query = query.by("size");
                }
                if is_descending {
                    query = query.descending();
                }
                let matches = |record: &Value| owner.is_none_or(|it| record["owner"] == json!(it));
                let size = |record: &Value| is_by_size.then(|| record["size"].as_u64());
                let mut want: Vec<_> =
                    model.records.iter().filter(|(_, (_, it))| matches(it)).collect();
                want.sort_by_key(|(key, (_, record))| (size(record), key.as_str()));
                if is_descending {
                    want.reverse();
                }
                want.truncate(limit);
                let found = bucket.find(query).await.unwrap();
                let found: Vec<_> =
                    found.records.into_iter().map(|it| (it.key, (it.etag, it.value))).collect();
                assert_eq!(found.iter().map(|(key, it)| (key, it)).collect::<Vec<_>>(), want);
            }
        }
    }
}

async fn commit(store: &Store, bucket: &Bucket<Value>, model: &mut Model, writes: &[Write]) {
    let mut batch = Batch::new();
    let mut next = model.records.clone();
    let mut failure = None;
    for write in writes {
        let key = format!("k{}", write.key);
        let there = next.get(&key).map(|(etag, _)| etag.clone());
        let expect = match write.expect {
            0 => Expect::Absent,
            1 => Expect::Anything,
            2 => there.clone().map_or(Expect::Absent, Expect::Etag),
            _ => model.seen.first().cloned().map_or(Expect::Anything, Expect::Etag),
        };
        let is_met = match &expect {
            Expect::Absent => there.is_none(),
            Expect::Etag(etag) => there.as_ref() == Some(etag),
            Expect::Anything => there.is_some() || write.record.is_some(),
        };
        if !is_met && failure.is_none() {
            failure = Some((key.clone(), there));
        }
        match write.record {
            Some((owner, size)) => {
                let record = json!({"owner": owner, "size": size});
                bucket.put_in(&mut batch, &key, expect, &record).unwrap();
                next.insert(key, (Etag::from_text(""), record));
            }
            None => {
                bucket.delete_in(&mut batch, &key, expect).unwrap();
                next.remove(&key);
            }
        }
    }
    match (store.commit(batch).await, failure) {
        (Ok(etags), None) => {
            for (write, etag) in writes.iter().zip(etags) {
                assert_eq!(etag.is_some(), write.record.is_some());
                let Some(etag) = etag else { continue };
                assert!(!model.seen.contains(&etag));
                model.seen.push(etag.clone());
                next.get_mut(&format!("k{}", write.key)).unwrap().0 = etag;
            }
            model.records = next;
        }
        (Err(Error::EtagConflict { key, found, .. }), Some(want)) => assert_eq!((key, found), want),
        (Err(Error::NotFound { key, .. }), Some(want)) => assert_eq!((key, None), want),
        (done, want) => panic!("{done:?}, not {want:?}"),
    }
}
