// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Writes, batches, leases and limits.

use std::time::Duration;

use serde_json::{Value, json};
use store::{
    Batch, Bucket, Error, Etag, Expect, Fence, Invalid, Query, Schema, Store, Thing, limits,
};
use tokio::task::JoinSet;

use crate::schemas::{OTHER, keys, volumes};

pub async fn a_hundred_concurrent_increments_lose_nothing(store: Store) {
    let bucket = volumes(&store).await;
    bucket.put("counter", Expect::Absent, &json!({"n": 0})).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let bucket = bucket.clone();
        tasks.spawn(async move {
            loop {
                let read = bucket.get("counter").await.unwrap();
                let next = json!({"n": read.value["n"].as_u64().unwrap() + 1});
                match bucket.put("counter", Expect::Etag(read.etag), &next).await {
                    Ok(_) => return,
                    Err(Error::EtagConflict { bucket, key, found: Some(_) }) => {
                        assert_eq!((bucket.as_str(), key.as_str()), ("volapi_volumes", "counter"));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(bucket.get("counter").await.unwrap().value, json!({"n": 100}));
}

pub async fn a_batch_happens_whole_or_not_at_all(store: Store) {
    let (volumes, other) =
        (volumes(&store).await, Bucket::<Value>::open(&store, OTHER).await.unwrap());
    let etag = volumes.put("a", Expect::Absent, &json!({"owner": "o"})).await.unwrap();
    let batch = |expect: Expect| {
        let mut batch = Batch::new();
        volumes.put_in(&mut batch, "b", Expect::Absent, &json!({"owner": "p"})).unwrap();
        other.put_in(&mut batch, "z", Expect::Anything, &json!({})).unwrap();
        volumes.delete_in(&mut batch, "a", expect).unwrap();
        other.put_in(&mut batch, "y", Expect::Absent, &json!({})).unwrap();
        batch
    };
    let stale = Expect::Etag(Etag::from_text("0000000000000000"));
    let found = Some(etag.clone());
    let (bucket, key) = ("volapi_volumes".to_owned(), "a".to_owned());
    let error = store.commit(batch(stale)).await.unwrap_err();
    assert_eq!(error, Error::EtagConflict { bucket, key, found });
    assert_eq!(keys(&volumes.find(Query::all()).await.unwrap()), ["a"]);
    assert!(other.find(Query::all()).await.unwrap().records.is_empty());

    let etags = store.commit(batch(Expect::Etag(etag))).await.unwrap();
    assert_eq!(etags.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
    assert_eq!(Some(volumes.get("b").await.unwrap().etag), etags[0]);
    assert_eq!(Some(other.get("y").await.unwrap().etag), etags[3]);
    assert!(matches!(volumes.get("a").await.unwrap_err(), Error::NotFound { .. }));
    let of = |owner| Query::all().with("owner", owner);
    assert!(volumes.find(of("o")).await.unwrap().records.is_empty());
    assert_eq!(keys(&volumes.find(of("p")).await.unwrap()), ["b"]);
    assert_eq!(store.commit(Batch::new()).await.unwrap(), []);
}

pub async fn transfers_between_two_buckets_keep_the_sum(store: Store) {
    let (one, two) = (volumes(&store).await, Bucket::<Value>::open(&store, OTHER).await.unwrap());
    one.put("purse", Expect::Absent, &json!({"n": 50})).await.unwrap();
    two.put("purse", Expect::Absent, &json!({"n": 50})).await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (store, one, two) = (store.clone(), one.clone(), two.clone());
        tasks.spawn(async move {
            let (from, to) = if task % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let mut left = 5;
            while left > 0 {
                let (a, b) = (from.get("purse").await.unwrap(), to.get("purse").await.unwrap());
                let n = |value: &Value, by: i64| json!({"n": value["n"].as_i64().unwrap() + by});
                let mut batch = Batch::new();
                from.put_in(&mut batch, "purse", Expect::Etag(a.etag), &n(&a.value, -3)).unwrap();
                to.put_in(&mut batch, "purse", Expect::Etag(b.etag), &n(&b.value, 3)).unwrap();
                match store.commit(batch).await {
                    Ok(_) => left -= 1,
                    Err(Error::EtagConflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    tasks.join_all().await;
    for bucket in [one, two] {
        assert_eq!(bucket.get("purse").await.unwrap().value, json!({"n": 50}));
    }
}

pub async fn etags_change_with_each_write_and_never_come_back(store: Store) {
    let bucket = volumes(&store).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let first = bucket.put("a", Expect::Absent, &json!({})).await.unwrap();
        let second = bucket.put("a", Expect::Anything, &json!({})).await.unwrap();
        assert_eq!(bucket.get("a").await.unwrap().etag, second);
        bucket.delete("a", Expect::Etag(second.clone())).await.unwrap();
        seen.extend([first.to_string(), second.to_string()]);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10);
}

pub async fn a_write_finds_what_it_expects_or_fails(store: Store) {
    let bucket = volumes(&store).await;
    // What is there, what the write expects, whether a put and a deletion succeed.
    for (at, is_there, expect, put, delete) in [
        (0, false, "absent", true, true),
        (1, false, "etag", false, false),
        (2, false, "anything", true, false),
        (3, true, "absent", false, false),
        (4, true, "etag", true, true),
        (5, true, "old etag", false, false),
        (6, true, "no etag", false, false),
        (7, true, "anything", true, true),
    ] {
        for is_put in [true, false] {
            let key = format!("{at}-{is_put}");
            let old = bucket.put(&key, Expect::Absent, &json!({"n": 1})).await.unwrap();
            let new = bucket.put(&key, Expect::Anything, &json!({"n": 1})).await.unwrap();
            if !is_there {
                bucket.delete(&key, Expect::Anything).await.unwrap();
            }
            let expect = match expect {
                "absent" => Expect::Absent,
                "etag" => Expect::Etag(new),
                "old etag" => Expect::Etag(old),
                "no etag" => Expect::Etag(Etag::from_text("é")),
                _ => Expect::Anything,
            };
            let (done, want) = if is_put {
                (bucket.put(&key, expect, &json!({"n": 2})).await.map(drop), put)
            } else {
                (bucket.delete(&key, expect).await, delete)
            };
            assert_eq!(done.is_ok(), want, "{key}: {done:?}");
            if let Err(error) = done {
                let is_expected = match error {
                    Error::EtagConflict { found, .. } => found.is_some() == is_there,
                    Error::NotFound { .. } => at == 2,
                    _ => false,
                };
                assert!(is_expected, "{key}");
            }
            let left = bucket.get(&key).await.map(|record| record.value["n"].clone()).ok();
            let want = match (want, is_put, is_there) {
                (true, true, _) => Some(json!(2)),
                (false, _, true) => Some(json!(1)),
                _ => None,
            };
            assert_eq!(left, want, "{key}");
        }
    }
}

pub async fn a_stopped_holder_changes_nothing_when_it_wakes(store: Store) {
    let bucket = volumes(&store).await;
    let claim = |holder: &'static str, millis| {
        let store = store.clone();
        async move { store.claim("timers", holder, Duration::from_millis(millis)).await.unwrap() }
    };
    let write = |fence: &Fence| {
        let mut batch = Batch::new();
        batch.require(fence);
        let record = json!({"n": fence.number()});
        bucket.put_in(&mut batch, "a", Expect::Anything, &record).unwrap();
        store.commit(batch)
    };
    let stopped = claim("one", 60_000).await.unwrap();
    write(&stopped).await.unwrap();
    assert_eq!(claim("two", 500).await, None);
    assert_eq!(claim("one", 40).await.as_ref(), Some(&stopped), "renewed under its number");
    // `one` is stopped; `two` asks until the lease ran out.
    let second = loop {
        if let Some(fence) = claim("two", 60_000).await {
            break fence;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(second.number() > stopped.number());
    write(&second).await.unwrap();
    let fenced = Error::Fenced { lease: "timers".to_owned(), number: stopped.number() };
    assert_eq!(write(&stopped).await.unwrap_err(), fenced);
    store.release(stopped).await.unwrap();
    assert_eq!(claim("one", 500).await, None, "giving back what another holds does nothing");
    assert_eq!(bucket.get("a").await.unwrap().value, json!({"n": second.number()}));

    store.release(second.clone()).await.unwrap();
    assert!(matches!(write(&second).await.unwrap_err(), Error::Fenced { .. }));
    let third = claim("one", 40).await.unwrap();
    assert!(third.number() > second.number());
    // Run out and taken by no other holder: its holder has to claim it anew, and gets another number.
    while write(&third).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(claim("one", 500).await.unwrap().number() > third.number());
    let other = store.claim("other", "one", Duration::from_secs(1)).await.unwrap().unwrap();
    assert_eq!((other.lease(), other.number()), ("other", 1));
}

pub async fn what_is_too_large_or_wrong_is_refused(store: Store) {
    let bucket = volumes(&store).await;
    let put = async |key: &str, record: Value| {
        bucket.put(key, Expect::Anything, &record).await.unwrap_err()
    };
    let invalid = |error| matches!(error, Error::Invalid(_));
    let large = json!({"x": "x".repeat(limits::RECORD)});
    let what = Thing::Record { bucket: "volapi_volumes".to_owned(), key: "a".to_owned() };
    let too_large = Error::TooLarge { what, size: limits::RECORD + 8, limit: limits::RECORD };
    assert_eq!(put("a", large).await, too_large);
    assert!(matches!(put("a", json!({"name": "x".repeat(1025)})).await, Error::TooLarge { .. }));
    assert!(invalid(put("a", json!([])).await));
    assert!(invalid(put("", json!({})).await));
    assert!(invalid(put("a\0", json!({})).await));
    assert!(invalid(put("a", json!({"name": {}})).await));
    assert!(invalid(bucket.get(&"k".repeat(257)).await.unwrap_err()));
    assert!(invalid(bucket.find(Query::all().with("nme", "x")).await.unwrap_err()));
    assert!(invalid(store.claim("a b", "c", Duration::ZERO).await.unwrap_err()));
    let schema = Schema { bucket: "a b", ..OTHER };
    assert!(invalid(Bucket::<Value>::open(&store, schema).await.unwrap_err()));
    let mut twice = Batch::new();
    bucket.delete_in(&mut twice, "a", Expect::Anything).unwrap();
    bucket.put_in(&mut twice, "a", Expect::Anything, &json!({})).unwrap();
    let (name, key) = ("volapi_volumes".to_owned(), "a".to_owned());
    assert_eq!(store.commit(twice).await.unwrap_err(), Invalid::Twice { bucket: name, key }.into());
    let mut batch = Batch::new();
    let most = (0..).find_map(|n| {
        bucket.delete_in(&mut batch, &n.to_string(), Expect::Anything).err().map(|it| (n, it))
    });
    let (n, error) = most.unwrap();
    assert_eq!(
        (n, error),
        (limits::BATCH, Error::TooLarge { what: Thing::Batch, size: n + 1, limit: n })
    );
    let mut batch = Batch::new();
    let large = json!({"x": "x".repeat(limits::RECORD - 8)});
    let (what, limit) = (Thing::BatchBytes, limits::BATCH_BYTES);
    let most = (0..)
        .find_map(|n| bucket.put_in(&mut batch, &n.to_string(), Expect::Anything, &large).err());
    assert!(
        matches!(most.unwrap(), Error::TooLarge { what: found, limit: at, .. } if (&found, at) == (&what, limit))
    );
    assert!(bucket.find(Query::all()).await.unwrap().records.is_empty());
}
