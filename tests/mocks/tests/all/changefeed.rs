// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's changefeed: the client of `sdc-clients` against the mock, in process under paused time, and over a
//! socket.

use std::sync::Arc;
use std::time::Duration;

use mocks::faults::{Action, Rule};
use mocks::transport::InProcess;
use mocks::vmapi::{Order, Server, Store};
use mocks::workflow;
use sdc_clients::vmapi::{Change, Changefeed, FeedEvent, Subscription, VmQuery, Vmapi};
use sdc_clients::{Class, Http, Jitter};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

const VM: &str = "40000000-0000-4000-8000-000000000001";
const NEW: &str = "40000000-0000-4000-8000-000000000002";
const CN: &str = "c0000000-0000-4000-8000-000000000001";

fn vm(uuid: &str, state: &str) -> Map<String, Value> {
    let vm = json!({ "uuid": uuid, "state": state, "zone_state": state, "server_uuid": CN });
    vm.as_object().unwrap().clone()
}

fn client(store: &Store) -> Vmapi {
    let transport = Arc::new(InProcess::new(store.clone()));
    Vmapi::new(Http::with_transport("http://vmapi.sim", "test/1", transport).unwrap())
}

fn subscription() -> Subscription {
    Subscription {
        service: "volapi".into(),
        instance: "i".into(),
        sub_resources: vec!["state".into(), "destroyed".into()],
        listing: VmQuery { fields: vec!["state".into()], ..VmQuery::default() },
    }
}

fn feed(vmapi: &Vmapi) -> Changefeed {
    vmapi.changefeed(subscription(), Jitter::from_seed(1))
}

async fn listed(feed: &mut Changefeed) -> Vec<String> {
    match feed.next().await {
        FeedEvent::Listed(vms) => {
            vms.iter().map(|vm| vm["uuid"].as_str().unwrap().to_owned()).collect()
        }
        other => panic!("no listing: {other:?}"),
    }
}

async fn changed(feed: &mut Changefeed) -> Change {
    match feed.next().await {
        FeedEvent::Changed(change) => change,
        other => panic!("no change: {other:?}"),
    }
}

async fn lost(feed: &mut Changefeed) -> Class {
    match feed.next().await {
        FeedEvent::Lost(error) => error.class(),
        other => panic!("not lost: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_comes_first_and_then_each_change_that_was_asked_for_within_two_seconds() {
    let store = Store::default();
    store.put(vm(VM, "running"));
    let vmapi = client(&store);
    let mut feed = feed(&vmapi);
    assert_eq!(listed(&mut feed).await, [VM]);
    assert!(feed.is_following());
    let began = Instant::now();
    let mut renamed = vm(VM, "running");
    renamed.insert("alias".into(), json!("web"));
    vmapi.put_vm(VM, &renamed).await.unwrap();
    vmapi.put_vm(NEW, &vm(NEW, "running")).await.unwrap();
    vmapi.put_vm(NEW, &vm(NEW, "destroyed")).await.unwrap();
    let first = changed(&mut feed).await;
    assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(first.uuid, NEW, "nobody asked for names");
    assert_eq!(first.sub_resources, ["uuid", "server_uuid", "state", "zone_state"]);
    assert_eq!((&first.vm["state"], &first.vm["server_uuid"]), (&json!("running"), &json!(CN)));
    let last = changed(&mut feed).await;
    assert_eq!(last.sub_resources, ["destroyed"], "without a word of its state");
    assert_eq!(last.vm["state"], "destroyed");
    // An hour of silence is no loss, and heartbeats are no registrations.
    let quiet = tokio::time::timeout(Duration::from_secs(3600), feed.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    vmapi.put_vm(VM, &vm(VM, "stopped")).await.unwrap();
    assert_eq!(changed(&mut feed).await.sub_resources, ["alias", "state", "zone_state"]);
}

#[tokio::test(start_paused = true)]
async fn what_came_while_the_feed_was_down_is_in_the_next_listing() {
    let store = Store::default();
    let vmapi = client(&store);
    let mut feed = feed(&vmapi);
    assert_eq!(listed(&mut feed).await, [""; 0]);
    store.cut_changefeed();
    assert_eq!(lost(&mut feed).await, Class::Interrupted);
    vmapi.put_vm(NEW, &vm(NEW, "running")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(listed(&mut feed).await, [NEW], "it is published to nobody");
    vmapi.put_vm(VM, &vm(VM, "running")).await.unwrap();
    assert_eq!(changed(&mut feed).await.uuid, VM);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_during_the_listing_is_told() {
    let store = Store::default();
    store.faults().add(Rule::new("GET", "/vms", Action::Delay { ms: 5000 }).times(1));
    let vmapi = client(&store);
    let mut feed = feed(&vmapi);
    let writes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        vmapi.put_vm(NEW, &vm(NEW, "running")).await.unwrap();
    };
    let (vms, ()) = tokio::join!(listed(&mut feed), writes);
    assert_eq!(vms, [NEW], "the mock lists after the delay");
    assert_eq!(changed(&mut feed).await.uuid, NEW, "told again rather than never");
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_tried_again_with_growing_waits() {
    let store = Store::default();
    let refuse = Action::Status { status: 503, body: None, retry_after: None };
    store.faults().add(Rule::new("GET", "/changefeeds", refuse).times(3));
    store
        .faults()
        .add(Rule::new("GET", "/vms", Action::Garbage { text: "<html>".into() }).times(1));
    let vmapi = client(&store);
    let mut feed = feed(&vmapi);
    for class in [Class::Unavailable, Class::Unavailable, Class::Unavailable, Class::Protocol] {
        assert_eq!(lost(&mut feed).await, class);
        assert!(!feed.is_following());
    }
    assert_eq!(listed(&mut feed).await, [""; 0]);
    // A server without the route, and one that answers it with a page.
    let without = sdc_clients::http::Call::get(&["nothing"]);
    let http =
        Http::with_transport("http://v.sim", "t/1", Arc::new(InProcess::new(store))).unwrap();
    let error = http.upgrade(without, http::HeaderMap::new()).await.err().unwrap();
    assert!(error.is_not_found_route(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn next_may_be_dropped_at_any_moment() {
    let store = Store::default();
    let vmapi = client(&store);
    let mut feed = feed(&vmapi);
    let mut seen = Vec::new();
    for round in 0..400u32 {
        if round % 40 == 39 {
            let uuid = format!("40000000-0000-4000-8000-{round:012}");
            vmapi.put_vm(&uuid, &vm(&uuid, "running")).await.unwrap();
        }
        let wait = Duration::from_millis(u64::from(round * 7 % 450));
        match tokio::time::timeout(wait, feed.next()).await {
            Ok(FeedEvent::Changed(change)) => seen.push(change.uuid),
            Ok(FeedEvent::Lost(error)) => panic!("{error}"),
            Ok(FeedEvent::Listed(_)) | Err(_) => {}
        }
    }
    while let Ok(FeedEvent::Changed(change)) =
        tokio::time::timeout(Duration::from_secs(3), feed.next()).await
    {
        seen.push(change.uuid);
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_listener_of_one_instance_takes_the_place_of_the_first() {
    let vmapi = client(&Store::default());
    let (mut first, mut second) = (feed(&vmapi), feed(&vmapi));
    listed(&mut first).await;
    listed(&mut second).await;
    vmapi.put_vm(VM, &vm(VM, "running")).await.unwrap();
    assert_eq!(changed(&mut second).await.uuid, VM);
    let silence = tokio::time::timeout(Duration::from_secs(60), first.next()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test(start_paused = true)]
async fn ordered_vms_are_made_and_deleted_by_the_callers_function() {
    let (store, jobs) = (Store::default(), workflow::Store::default());
    let vmapi = client(&store);
    let agent = vmapi.clone();
    store.run_jobs(
        jobs.clone(),
        Arc::new(move |order: Order| {
            let agent = agent.clone();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(30)).await;
                if order.vm.get("alias").is_some_and(|alias| alias == "impossible") {
                    return Err("no room".to_owned());
                }
                let state = if order.verb == "create" { "running" } else { "destroyed" };
                let mut vm = vm(&order.vm_uuid, state);
                vm.insert("server_uuid".into(), json!(order.server_uuid));
                agent.put_vm(&order.vm_uuid, &vm).await.map_err(|error| error.to_string())
            })
        }),
    );
    let mut feed = feed(&vmapi);
    listed(&mut feed).await;
    let payload = |uuid: &str, alias: &str| {
        let vm = json!({ "uuid": uuid, "alias": alias, "brand": "joyent", "ram": 256, "image_uuid": VM,
            "owner_uuid": CN, "networks": [CN] });
        vm.as_object().unwrap().clone()
    };
    let ordered = vmapi.create_vm(&payload(VM, "nfs")).await.unwrap();
    vmapi.create_vm(&payload(NEW, "impossible")).await.unwrap();
    assert_eq!(jobs.get(&ordered.job_uuid).unwrap()["target"], format!("/provision-{VM}"));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let change = changed(&mut feed).await;
        seen.push((change.uuid.clone(), change.vm["state"].as_str().unwrap().to_owned()));
    }
    let is = |uuid: &str, state: &str| seen.contains(&(uuid.to_owned(), state.to_owned()));
    assert!(is(VM, "provisioning") && is(VM, "running") && is(NEW, "failed"), "{seen:?}");
    assert_eq!(jobs.get(&ordered.job_uuid).unwrap()["execution"], "succeeded");
    let deleted = vmapi.delete_vm(VM).await.unwrap();
    assert_eq!(jobs.get(&deleted.job_uuid).unwrap()["execution"], "queued");
    assert_eq!(changed(&mut feed).await.sub_resources, ["destroyed"]);
    assert_eq!(jobs.get(&deleted.job_uuid).unwrap()["execution"], "succeeded");
}

#[tokio::test]
async fn over_a_socket_too() {
    let server = Server::start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let vmapi = Vmapi::new(Http::new(&server.url(), "test/1").unwrap());
    let mut feed = feed(&vmapi);
    assert_eq!(listed(&mut feed).await, [""; 0]);
    vmapi.put_vm(VM, &vm(VM, "running")).await.unwrap();
    assert_eq!(changed(&mut feed).await.uuid, VM);
    let stats = sdc_clients::http::Call::get(&["changefeeds", "stats"]);
    let http = Http::new(&server.url(), "test/1").unwrap();
    let stats = http.execute(stats).await.unwrap().object().unwrap();
    assert_eq!(stats["listeners"], 1);
    assert_eq!(stats["registrations"]["i"]["service"], "volapi");
    server.stop().await;
    assert_eq!(lost(&mut feed).await, Class::Interrupted);
    assert_eq!(lost(&mut feed).await, Class::Connect);
}
