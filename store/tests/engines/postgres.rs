// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The engine on PostgreSQL: the suite, lost replies, a server that is killed. Skipped with a word where it is
//! not installed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rig::postgres::{Cluster, Cut, Proxy, address};
use serde_json::{Value, json};
use store::{Batch, Bucket, Error, Expect, Invalid, Query, Store};
use tokio::sync::OnceCell;

use crate::schemas::{OTHER, VOLUMES};
use crate::suite::suite;

/// One server for all tests but those that kill it.
static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
static DATABASES: AtomicUsize = AtomicUsize::new(0);

/// Makes a database of its own for a test.
async fn database() -> Option<(&'static Cluster, String)> {
    let cluster = CLUSTER.get_or_init(Cluster::start).await.as_ref()?;
    let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    cluster.database(&name).await;
    Some((cluster, name))
}

async fn open() -> Option<(Store, ())> {
    let (cluster, name) = database().await?;
    Some((Store::postgres(&cluster.address(&name)).unwrap(), ()))
}

suite!(tokio::test(flavor = "multi_thread"), open);

#[test]
fn it_agrees_with_a_map() {
    crate::model::agrees(8, open);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_share_records_and_leases() {
    let Some((cluster, name)) = database().await else { return };
    let stores = [0, 1].map(|_| Store::postgres(&cluster.address(&name)).unwrap());
    let open = |store| Bucket::<Value>::open(store, VOLUMES);
    let (one, two) = tokio::join!(open(&stores[0]), open(&stores[1]));
    let (one, two) = (one.unwrap(), two.unwrap());
    let etag = one.put("a", Expect::Absent, &json!({})).await.unwrap();
    assert_eq!(two.get("a").await.unwrap().etag, etag);
    assert!(matches!(
        two.put("a", Expect::Absent, &json!({})).await,
        Err(Error::EtagConflict { .. })
    ));
    let minute = std::time::Duration::from_secs(60);
    let fence = stores[0].claim("timers", "one", minute).await.unwrap().unwrap();
    assert_eq!(stores[1].claim("timers", "two", minute).await.unwrap(), None);
    stores[0].release(fence).await.unwrap();
    assert_eq!(stores[1].claim("timers", "two", minute).await.unwrap().unwrap().number(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_claimed_before_the_clock_went_back_a_day_is_taken_over() {
    let Some((cluster, name)) = database().await else { return };
    let store = Store::postgres(&cluster.address(&name)).unwrap();
    let bucket = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    let claim = |holder, secs| store.claim("timers", holder, std::time::Duration::from_secs(secs));
    // It runs as long as one of a minute does whose holder died a day ahead of now.
    let old = claim("one", 86_400).await.unwrap().unwrap();
    let new = claim("two", 60).await.unwrap().unwrap();
    assert_eq!((old.number(), new.number()), (1, 2));
    let mut batch = Batch::new();
    batch.require(&old);
    bucket.put_in(&mut batch, "a", Expect::Absent, &json!({})).unwrap();
    assert!(matches!(store.commit(batch).await, Err(Error::Fenced { .. })));
    assert_eq!(claim("one", 60).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_lost_at_commit_is_read_back() {
    let Some((cluster, name)) = database().await else { return };
    let proxy = Proxy::start(cluster.socket_dir());
    let store = Store::postgres(&address(proxy.dir(), &name)).unwrap();
    let (bucket, other) = (
        Bucket::<Value>::open(&store, VOLUMES).await.unwrap(),
        Bucket::open(&store, OTHER).await.unwrap(),
    );
    let mut etag = bucket.put("counter", Expect::Absent, &json!({"n": 0})).await.unwrap();
    let cuts = [Cut::Before, Cut::After, Cut::Late, Cut::After, Cut::Before];
    for (n, cut) in (1..).zip(cuts) {
        proxy.cut_next(cut);
        let mut batch = Batch::new();
        bucket.put_in(&mut batch, "counter", Expect::Etag(etag), &json!({"n": n})).unwrap();
        other.put_in(&mut batch, &format!("step {n}"), Expect::Absent, &json!({})).unwrap();
        // Done twice, it would find another etag than it expects; not done, the next one would.
        let etags = store.commit(batch).await.unwrap();
        assert!(!proxy.is_armed(), "{cut:?}");
        let read = bucket.get("counter").await.unwrap();
        assert_eq!((Some(&read.etag), read.value), (etags[0].as_ref(), json!({"n": n})), "{cut:?}");
        etag = read.etag;
    }
    let steps = other.find(Query::all()).await.unwrap();
    assert_eq!(steps.records.len(), cuts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_a_hand_has_broken_is_named_and_can_be_replaced() {
    let Some((cluster, name)) = database().await else { return };
    let store = Store::postgres(&cluster.address(&name)).unwrap();
    let bucket = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    for key in ["a", "b"] {
        bucket.put(key, Expect::Absent, &json!({"owner": "ann"})).await.unwrap();
    }
    let (client, connection) =
        tokio_postgres::connect(&cluster.address(&name), tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client
        .batch_execute("UPDATE store.record SET value = '{\"owner' WHERE key = 'a'")
        .await
        .unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    assert!(matches!(bucket.get("a").await, Err(Error::Corrupt { key, .. }) if key == "a"));
    let page = bucket.find(Query::all().with("owner", "ann")).await.unwrap();
    assert_eq!((page.records.len(), page.unreadable.len()), (1, 1));
    let schema = store::Schema { version: 2, ..VOLUMES };
    let bucket = Bucket::<Value>::open(&store, schema).await.unwrap();
    bucket.put("a", Expect::Anything, &json!({"owner": "ann"})).await.unwrap();
    assert_eq!(bucket.find(Query::all().with("owner", "ann")).await.unwrap().records.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_said_to_be_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::postgres(&address(dir.path(), "x")).unwrap();
    let error = Bucket::<Value>::open(&store, VOLUMES).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = store.claim("timers", "one", std::time::Duration::ZERO).await.unwrap_err();
    assert!(error.is_away(), "{error}");
    let error = Store::postgres("postgresql://user:secret@[host").unwrap_err();
    assert!(matches!(&error, Error::Invalid(Invalid::Address(_))));
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(!format!("{store:?}").contains("secret"));
}

/// What the four writers share.
#[derive(Debug, Default)]
struct Tally {
    acked: AtomicUsize,
    in_doubt: AtomicUsize,
    is_over: AtomicBool,
}

/// Adds one to the counter and makes a record of its own for each step, and returns the steps made.
async fn write(address: String, name: usize, tally: Arc<Tally>) -> usize {
    let store = Store::postgres(&address).unwrap();
    let counter = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    let steps = Bucket::<Value>::open(&store, OTHER).await.unwrap();
    let mut made = 0;
    while !tally.is_over.load(Ordering::Relaxed) {
        let key = format!("{name}-{made}");
        let read = match counter.get("counter").await {
            Ok(read) => read,
            Err(error) => {
                assert!(error.is_away(), "{error}");
                continue;
            }
        };
        let next = json!({"n": read.value["n"].as_u64().unwrap() + 1});
        let mut batch = Batch::new();
        counter.put_in(&mut batch, "counter", Expect::Etag(read.etag), &next).unwrap();
        steps.put_in(&mut batch, &key, Expect::Absent, &json!({})).unwrap();
        match store.commit(batch).await {
            Ok(_) => {
                made += 1;
                tally.acked.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::EtagConflict { key, .. }) => assert_eq!(key, "counter", "done twice"),
            Err(Error::Unavailable { .. }) => {}
            Err(Error::UnknownOutcome { .. }) => {
                tally.in_doubt.fetch_add(1, Ordering::Relaxed);
                loop {
                    match steps.get(&key).await {
                        Ok(_) => break made += 1,
                        Err(Error::NotFound { .. }) => break,
                        Err(error) => assert!(error.is_away(), "{error}"),
                    }
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_twice_under_four_writers_loses_nothing_and_does_nothing_twice() {
    let Some(cluster) = Cluster::start().await else { return };
    let again = async || {
        cluster.kill();
        cluster.run().await;
    };
    nothing_is_lost(cluster.address("postgres"), 2, again).await;
}

/// Who holds a lease, over all instances.
#[derive(Debug, Default)]
struct Holders {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// The work of one that leads: it never ends, and is dropped with the lease.
struct Held(Arc<Holders>);

impl Held {
    async fn lead(holders: Arc<Holders>) {
        let now = 1 + holders.now.fetch_add(1, Ordering::SeqCst);
        holders.most.fetch_max(now, Ordering::SeqCst);
        let _held = Held(holders);
        std::future::pending().await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_promoted_has_every_write_and_no_lease_is_held_twice() {
    let Some(primary) = Cluster::start().await else { return };
    let standby = primary.standby().await;
    // The standby first: it answers, and refuses what is written.
    let hosts = [&standby, &primary].map(|server| server.socket_dir().display().to_string());
    let address = format!("host={} user=store dbname=postgres", hosts.join(","));
    let holders = Arc::new(Holders::default());
    let mut leaders = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (store, holders) = (Store::postgres(&address).unwrap(), Arc::clone(&holders));
        let term = std::time::Duration::from_secs(3);
        leaders.spawn(async move {
            store.lead("timers", term, |_| Box::pin(Held::lead(Arc::clone(&holders)))).await
        });
    }
    let fails_over = async || {
        primary.kill();
        standby.promote().await;
    };
    nothing_is_lost(address, 1, fails_over).await;
    let led = async {
        while holders.now.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), led).await.unwrap();
    assert_eq!(holders.most.load(Ordering::SeqCst), 1);
    leaders.abort_all();
}

/// Four writers, while the server dies so often: nothing that was acknowledged is lost, nothing is done twice.
async fn nothing_is_lost(address: String, deaths: usize, die: impl AsyncFn()) {
    let store = Store::postgres(&address).unwrap();
    let counter = Bucket::<Value>::open(&store, VOLUMES).await.unwrap();
    counter.put("counter", Expect::Absent, &json!({"n": 0})).await.unwrap();
    let tally = Arc::new(Tally::default());
    let mut writers = tokio::task::JoinSet::new();
    for name in 0..4 {
        writers.spawn(write(address.clone(), name, tally.clone()));
    }
    let more = async |count: usize| {
        let want = tally.acked.load(Ordering::Relaxed) + count;
        let enough = async {
            while tally.acked.load(Ordering::Relaxed) < want {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(300), enough).await.unwrap();
    };
    for _ in 0..deaths {
        more(150).await;
        die().await;
    }
    more(150).await;
    tally.is_over.store(true, Ordering::Relaxed);
    let mut made = 0;
    while let Some(ended) = writers.join_next().await {
        made += ended.unwrap();
    }
    let steps = Bucket::<Value>::open(&store, OTHER).await.unwrap();
    let (mut found, mut query) = (0, Query::all());
    loop {
        let page = steps.find(query).await.unwrap();
        found += page.records.len();
        let Some(marker) = page.next else { break };
        query = Query::all().after(marker);
    }
    assert_eq!((found, counter.get("counter").await.unwrap().value), (made, json!({"n": made})));
    assert!(made >= tally.acked.load(Ordering::Relaxed) && made >= 150 * (deaths + 1));
    println!("{made} steps, {} in doubt to the writer", tally.in_doubt.load(Ordering::Relaxed));
}
