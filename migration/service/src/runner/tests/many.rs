// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Thousands of records that are over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use migration_core::record::State;
use migration_core::samples::record;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use store::{Batch, Call, Fault, Faults};
use uuid::Uuid;

use super::super::timers::{Sweeps, sweep};
use super::node::{ONE, VM};
use super::words::{answered, page};
use super::world::World;
use crate::history::of;
use migration_core::time::Time;

/// Counts what is read of the store: each answer has at most 1,000 records.
#[derive(Debug, Default)]
struct Reads(AtomicUsize);

impl Faults for Reads {
    fn next(&self, call: Call) -> Fault {
        self.0.fetch_add(usize::from(call == Call::Read), Ordering::Relaxed);
        Fault::None
    }
}

fn job(at: u128) -> Uuid {
    Uuid::from_u128(1 << 100 | at)
}

/// A data centre with so many records that are over, and one that waits.
async fn centre(over: u128) -> (Arc<World>, Arc<Reads>) {
    let world = World::new(true);
    let plain = world.with_store(world.store.clone());
    let records = &plain.plain().await.records;
    let all = (1..=over).map(|at| {
        let time = format!("2026-01-01T00:{:02}:{:02}.000Z", at / 60 % 60, at % 60);
        let entry = json!([{"type": "progress", "phase": "abort", "state": "successful", "job_uuid": job(at)}]);
        let fields = json!({
            "id": Uuid::from_u128(at), "vm_uuid": Uuid::from_u128(at), "phase": "abort", "state": "aborted",
            "created_timestamp": time, "progress_history": entry, "source_server_uuid": ONE,
        });
        record(fields)
    });
    records.overwrite_all(&all.collect::<Vec<_>>()).await.unwrap();
    records.overwrite(&record(json!({"vm_uuid": VM, "state": "paused"}))).await.unwrap();
    let history = &records.history;
    for some in (1..=over).collect::<Vec<_>>().chunks(500) {
        let mut batch = Batch::new();
        for at in some {
            let time = Time::from_millis(i64::try_from(*at).unwrap() * 1000);
            let mut ended = record(json!({"vm_uuid": Uuid::from_u128(*at), "id": job(*at)}));
            let ended = of(&mut ended, ("migrate", "successful"), time);
            history.put_in(&mut batch, &ended).await.unwrap();
        }
        world.store.commit(batch).await.unwrap();
    }
    let reads = Arc::new(Reads::default());
    (world.with_store(world.store.with_faults(reads.clone())), reads)
}

/// What one round, and each answer, reads.
async fn reads(over: u128) -> BTreeMap<&'static str, usize> {
    let (world, reads) = centre(over).await;
    let service = world.plain().await;
    let fence = world.store.claim("lease", "one", Duration::from_secs(60)).await.unwrap().unwrap();
    let mut counts = BTreeMap::new();
    let mut count = |what| {
        counts.insert(what, reads.0.swap(0, Ordering::Relaxed));
    };
    count("its start");
    sweep(service, &fence, &mut Sweeps::default()).await.unwrap();
    count("a round");
    let job = |at| format!("/jobs/{}", job(at));
    assert_eq!(world.ask("GET", &job(7), json!({})).await.0, 200);
    count("a job");
    assert_eq!(world.ask("GET", &job(1 << 90), json!({})).await.0, 404);
    count("a job that is not there");
    let open = format!("{}.0,{}.0", Uuid::from_u128(7), Uuid::from_u128(1 << 90));
    assert_eq!(answered(&world, ONE, &open).await["known"].as_array().unwrap().len(), 1);
    count("what an agent asks");
    let (status, listed) = world.ask("GET", "/migrations", json!({})).await;
    assert_eq!((status, listed.as_array().unwrap().len()), (200, 1));
    count("the list");
    let (status, listed) = world.ask("GET", "/migrations?state=aborted", json!({})).await;
    assert_eq!((status, listed.as_array().unwrap().len() <= 1000), (200, true));
    count("the list of those that are over");
    let (status, listed) = world.ask("GET", "/migrations?format=history&limit=50", json!({})).await;
    assert_eq!((status, listed.as_array().unwrap().len()), (200, 50));
    count("the history");
    page(&world, "/status").await;
    count("the status");
    page(&world, "/metrics").await;
    count("the metrics");
    counts.remove("its start");
    counts
}

#[tokio::test] // M128
async fn ten_thousand_records_that_are_over_are_read_by_no_round_and_no_answer() {
    assert_eq!(reads(10_000).await, reads(100).await);
}

#[tokio::test] // M128
async fn a_list_of_those_that_are_over_has_a_limit_and_begins_with_the_newest() {
    let (world, _) = centre(1200).await;
    let list = async |query: &str| -> Vec<Value> {
        let (status, listed) = world.ask("GET", &format!("/migrations?{query}"), json!({})).await;
        assert_eq!(status, 200, "{query}: {listed}");
        listed.as_array().unwrap().clone()
    };
    let state = State::Aborted.name();
    assert_eq!(list(&format!("state={state}")).await.len(), 1000);
    let newest = list(&format!("state={state}&limit=3")).await;
    let times: Vec<&str> =
        newest.iter().map(|it| it["created_timestamp"].as_str().unwrap()).collect();
    assert_eq!(
        times,
        ["2026-01-01T00:20:00.000Z", "2026-01-01T00:19:59.000Z", "2026-01-01T00:19:58.000Z"]
    );
    let one = list(&format!("state={state}&vm_uuid={}", Uuid::from_u128(9))).await;
    assert_eq!(one.len(), 1);
    for limit in ["0", "1001", "x"] {
        let (status, _) = world.ask("GET", &format!("/migrations?limit={limit}"), json!({})).await;
        assert_eq!(status, 409, "{limit}");
    }
}
