// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Searches, pages, indices, and what a record may say.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Bucket, Error, Expect, Invalid, Query, Schema, Store, limits};

use crate::schemas::{OTHER, VOLUMES, keys, volumes};

pub async fn records_are_found_by_their_fields(store: Store) {
    let bucket = volumes(&store).await;
    for (key, record) in [
        ("a", json!({"owner": "ann", "name": "x", "size": 10240, "refs": ["v1", "v2"]})),
        ("b", json!({"owner": "ann", "name": "y", "size": 9, "refs": ["v2"], "state": "ready"})),
        ("c", json!({"owner": "ann", "name": "Y", "size": 100.5, "state": "ready"})),
        ("d", json!({"owner": "bob", "name": "y", "size": -1, "refs": [], "state": null})),
        ("e", json!({"owner": "ann\u{0}", "name": "é", "state": true})),
    ] {
        bucket.put(key, Expect::Absent, &record).await.unwrap();
    }
    Bucket::<Value>::open(&store, OTHER)
        .await
        .unwrap()
        .put("f", Expect::Absent, &json!({"owner": "ann"}))
        .await
        .unwrap();
    let all = Query::all;
    for (query, found) in [
        (all(), "a b c d e"),
        (all().descending(), "e d c b a"),
        (all().limit(2), "a b"),
        (all().with("owner", "ann"), "a b c"),
        (all().with("owner", "ann").descending().limit(2), "c b"),
        (all().with("owner", "ann").with("name", "y"), "b"),
        (all().with("name", "y").with("owner", "carl"), ""),
        (all().with("refs", "v2"), "a b"),
        (all().with("refs", "v2").with("refs", "v1"), "a"),
        (all().with("size", 10240), "a"),
        (all().with("size", "10240"), ""),
        (all().with("state", Value::Null), "a d"),
        (all().with("state", true), "e"),
        (all().by("size"), "e d b c a"),
        (all().by("size").descending().limit(3), "a c b"),
        (all().by("name"), "c a b d e"),
        (all().by("name").with("owner", "ann"), "c a b"),
        (all().by("name").with("owner", "ann").descending(), "b a c"),
        (all().by("state"), "a d e b c"),
    ] {
        let text = format!("{query:?}");
        assert_eq!(keys(&bucket.find(query).await.unwrap()).join(" "), found, "{text}");
    }
    // The indices follow the record.
    bucket
        .put("a", Expect::Anything, &json!({"owner": "bob", "refs": ["v1", "v3"]}))
        .await
        .unwrap();
    for (query, found) in [
        (all().with("owner", "ann"), "b c"),
        (all().with("refs", "v2"), "b"),
        (all().with("refs", "v3"), "a"),
        (all().with("owner", "bob").by("name"), "a d"),
    ] {
        assert_eq!(keys(&bucket.find(query).await.unwrap()).join(" "), found);
    }
}

pub async fn pages_follow_each_other_whatever_is_written_between(store: Store) {
    let bucket = volumes(&store).await;
    for n in 0..23 {
        let record = json!({"owner": "ann", "size": n % 5});
        bucket.put(&format!("k{n:02}"), Expect::Absent, &record).await.unwrap();
    }
    for query in [
        Query::all(),
        Query::all().descending(),
        Query::all().by("size"),
        Query::all().by("size").descending(),
        Query::all().with("owner", "ann"),
        Query::all().with("owner", "ann").by("size").descending(),
    ] {
        let whole: Vec<String> = keys(&bucket.find(query.clone()).await.unwrap())
            .iter()
            .map(|it| it.to_string())
            .collect();
        assert_eq!(whole.len(), 23);
        let (mut paged, mut next) = (Vec::new(), query.clone().limit(4));
        loop {
            let page = bucket.find(next).await.unwrap();
            paged.extend(keys(&page).iter().map(|it| it.to_string()));
            // What was already shown goes; it is neither shown again nor makes another one be missed.
            let shown = page.records.last().unwrap();
            bucket.delete(&shown.key, Expect::Anything).await.unwrap();
            let Some(marker) = page.next else { break };
            let marker = marker.to_string().parse().unwrap();
            next = query.clone().limit(4).after(marker);
        }
        assert_eq!(paged, whole);
        for key in whole {
            let n: usize = key[1..].parse().unwrap();
            let record = json!({"owner": "ann", "size": n % 5});
            bucket.put(&key, Expect::Anything, &record).await.unwrap();
        }
    }
}

pub async fn any_unicode_comes_back_as_it_was(store: Store) {
    let bucket = volumes(&store).await;
    let texts = [
        "",
        "\0",
        "a\0b",
        "\u{1}\u{7f}\u{85}",
        "é",
        "e\u{301}",
        "日本",
        "😀",
        "\u{feff}x",
        "\u{10ffff}",
        "'; --",
        "\\",
        "\"",
        "%_",
    ];
    for (at, text) in texts.iter().enumerate() {
        let record =
            json!({"z": text, "name": text, "a": {"deep": [text]}, "big": u64::MAX, "n": 1.5e300});
        let key = format!("ключ/'\\ {at}😀");
        bucket.put(&key, Expect::Absent, &record).await.unwrap();
        let read = bucket.get(&key).await.unwrap();
        // As text: the order of the keys is part of it.
        assert_eq!((read.key, read.value.to_string()), (key.clone(), record.to_string()));
        assert_eq!(keys(&bucket.find(Query::all().with("name", *text)).await.unwrap()), [key]);
    }
    let mut sorted = texts;
    sorted.sort();
    let page = bucket.find(Query::all().by("name")).await.unwrap();
    let names: Vec<&str> =
        page.records.iter().map(|it| it.value["name"].as_str().unwrap()).collect();
    assert_eq!(names, sorted);
}

pub async fn a_new_version_has_new_indices_and_old_programs_are_refused(store: Store) {
    let old = volumes(&store).await;
    for n in 0..250 {
        old.put(&format!("k{n:03}"), Expect::Absent, &json!({"size": n, "zone": n % 2}))
            .await
            .unwrap();
    }
    Bucket::<Value>::open(&store, Schema { bucket: "volapi_volumes.b", ..OTHER })
        .await
        .unwrap()
        .put("k000", Expect::Absent, &json!({"size": 1}))
        .await
        .unwrap();
    let changed = Schema { fields: &["zone"], ..VOLUMES };
    let fields = Invalid::Fields { bucket: "volapi_volumes".to_owned(), version: 1 };
    assert_eq!(Bucket::<Value>::open(&store, changed).await.unwrap_err(), fields.into());
    let new = Bucket::<Value>::open(&store, Schema { version: 2, ..changed }).await.unwrap();
    assert_eq!(new.find(Query::all().with("zone", 1)).await.unwrap().records.len(), 125);
    assert_eq!(new.find(Query::all()).await.unwrap().records.len(), 250);
    let newer = Error::Newer { what: "bucket volapi_volumes".to_owned(), found: 2, known: 1 };
    assert_eq!(old.put("k000", Expect::Anything, &json!({})).await.unwrap_err(), newer);
    assert_eq!(Bucket::<Value>::open(&store, VOLUMES).await.unwrap_err(), newer);
    assert!(old.get("k000").await.is_ok());
    new.delete("k001", Expect::Anything).await.unwrap();
    assert_eq!(new.find(Query::all().with("zone", 1)).await.unwrap().records.len(), 124);
}

#[derive(Debug, Serialize, Deserialize)]
struct Strict {
    owner: String,
}

pub async fn a_record_that_cannot_be_read_is_named(store: Store) {
    let bucket = volumes(&store).await;
    for (key, record) in
        [("a", json!({"owner": "x"})), ("b", json!({"owner": 1})), ("c", json!({"owner": "z"}))]
    {
        bucket.put(key, Expect::Absent, &record).await.unwrap();
    }
    let strict = Bucket::<Strict>::open(&store, VOLUMES).await.unwrap();
    let corrupt = strict.get("b").await.unwrap_err();
    let text = corrupt.to_string();
    assert!(
        text.starts_with("record b of bucket volapi_volumes cannot be read: invalid type"),
        "{text}"
    );
    let page = strict.find(Query::all()).await.unwrap();
    let owners: Vec<&str> = page.records.iter().map(|it| it.value.owner.as_str()).collect();
    assert_eq!((owners, page.unreadable), (vec!["x", "z"], vec![corrupt]));
    strict.put("b", Expect::Anything, &Strict { owner: "y".to_owned() }).await.unwrap();
    assert_eq!(strict.get("b").await.unwrap().value.owner, "y");
}

pub async fn pages_are_bounded_in_bytes(store: Store) {
    let bucket = volumes(&store).await;
    let large = json!({"x": "x".repeat(limits::RECORD - 8)});
    for n in 0..18 {
        bucket.put(&format!("k{n:02}"), Expect::Absent, &large).await.unwrap();
    }
    let page = bucket.find(Query::all()).await.unwrap();
    assert_eq!(page.records.len(), 16);
    let rest = bucket.find(Query::all().after(page.next.unwrap())).await.unwrap();
    assert_eq!((keys(&rest), &rest.next), (vec!["k16", "k17"], &None));
}
