// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes, in front of a mock VMAPI in the same process.

#![allow(clippy::unwrap_used)]

mod bypass;
mod jobs;
mod shown;
mod streamed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use daemon::Shutdown;
use daemon::http::{Limits, Server, call};
use http::{Request, Response};
use mocks::faults::{Action, Rule};
use mocks::transport::{InProcess, Recorded};
use mocks::vmapi;
use pretty_assertions::assert_eq;
use sdc_clients::Jitter;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Http, HttpTransport, Transport};
use sdc_clients::vmapi::{FeedEvent, Subscription, Vmapi};
use serde_json::{Value, json};
use store::{Fault, Faults};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Upstream, first_line, router};
use crate::clock::Clock;
use crate::state::Service;
use crate::{Addresses, Agents, Known, Peers};
use migration_core::record::Record;
use migration_core::samples::record;
use migration_core::time::Time;

const VM: &str = "0aa41ab0-2046-4d53-a82c-b9876136d4f1";
const SERVER: &str = "96c6fbfa-9615-4135-b135-0199b3500ce4";

struct World {
    service: Service,
    routes: Router,
    vmapi: Arc<Recorded>,
}

async fn world() -> World {
    world_on(store::Store::in_memory().unwrap()).await
}

async fn world_on(store: store::Store) -> World {
    world_of(store, vmapi::Store::default()).await
}

async fn world_of(store: store::Store, mock: vmapi::Store) -> World {
    mock.set(VM, "running", Some(SERVER));
    let vmapi = Arc::new(Recorded::new(Arc::new(InProcess::new(mock))));
    let transport: Arc<dyn Transport> = vmapi.clone();
    let at = |name: &str| format!("http://{name}.sim");
    let addresses = Addresses {
        vmapi: at("vmapi"),
        cnapi: at("cnapi"),
        napi: at("napi"),
        imgapi: at("imgapi"),
        papi: at("papi"),
    };
    let peers = Peers::new(&addresses, &transport).unwrap();
    let clock = Clock::simulated(Time::parse("2026-03-01T00:00:00Z").unwrap());
    let known = Known { port: 1, urls: Default::default() };
    let http = Http::with_transport("http://cnapi.sim", "test", transport.clone()).unwrap();
    let agents = Agents::new(known, Cnapi::new(http), transport.clone());
    let service =
        Service::open(&store, peers, agents, clock, "http://migrations.sim").await.unwrap();
    let upstream = Upstream::new("http://vmapi.sim/", transport).unwrap();
    World { routes: router(service.clone(), upstream), service, vmapi }
}

impl World {
    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let answer =
            call(self.routes.clone(), request.body(Body::from(body.to_string())).unwrap()).await;
        let status = answer.status().as_u16();
        (status, read(answer).await)
    }

    async fn keep(&self, record: &Record) {
        self.service.records.overwrite(record).await.unwrap();
    }
}

async fn read(answer: Response<Body>) -> Value {
    let bytes = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[tokio::test] // M30
async fn what_is_not_ours_passes_as_it_came() {
    let world = world().await;
    for (method, path) in [
        ("PUT", format!("/vms/{VM}?a=b%20c")),
        ("GET", format!("/vms/{VM}?fields=uuid")),
        ("PUT", "/vms?server_uuid=x".to_owned()),
        ("GET", "/ping".to_owned()),
        ("POST", format!("/vms/{VM}/role_tags")),
        ("PUT", "/migrations".to_owned()),
    ] {
        let body = json!({"uuid": VM, "server_uuid": SERVER, "state": "running"});
        let (_, answer) = world.ask(method, &path, body.clone()).await;
        let sent = world.vmapi.requests().pop().unwrap();
        assert_eq!((sent.method.as_str(), sent.target()), (method, path.clone()));
        assert_eq!(sent.body.as_deref(), Some(body.to_string().as_bytes()), "{path}");
        assert!(sent.headers.contains_key("x-request-id"));
        assert!(!answer.is_null(), "{path}");
    }
}

#[tokio::test] // M30
async fn vmapis_changefeed_passes_as_a_connection() {
    let vmapi = vmapi::Server::start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    vmapi.store().publish_every(Duration::from_millis(20));
    let refuse = Action::Status { status: 503, body: None, retry_after: None };
    vmapi.store().faults().add(Rule::new("GET", "/changefeeds", refuse).times(1));
    let world = world().await;
    let upstream = Upstream::new(&vmapi.url(), Arc::new(HttpTransport::new().unwrap())).unwrap();
    let (listener, address) = daemon::http::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let shutdown = Shutdown::new();
    let server = Server::new(Limits::default(), shutdown.clone());
    let served = tokio::spawn(server.serve(listener, router(world.service.clone(), upstream)));
    let front = Vmapi::new(Http::new(&format!("http://{address}"), "test").unwrap());
    let subscription =
        Subscription { sub_resources: vec!["alias".to_owned()], ..Subscription::default() };
    let mut feed = front.changefeed(subscription, Jitter::from_seed(1));
    // What VMAPI refuses is refused as VMAPI does.
    let FeedEvent::Lost(refused) = feed.next().await else { panic!("not refused") };
    assert_eq!(refused.status(), Some(503));
    assert!(matches!(feed.next().await, FeedEvent::Listed(_)));
    let vm = json!({"uuid": VM, "alias": "web", "server_uuid": SERVER, "state": "running"});
    front.put_vm(VM, vm.as_object().unwrap()).await.unwrap();
    let FeedEvent::Changed(change) = feed.next().await else { panic!("no change") };
    assert_eq!((change.uuid.as_str(), &change.vm["alias"]), (VM, &json!("web")));
    // VMAPI's end of the connection is its end, and so is this service's.
    vmapi.store().cut_changefeed();
    assert!(matches!(feed.next().await, FeedEvent::Lost(_)));
    assert!(matches!(feed.next().await, FeedEvent::Listed(_)));
    shutdown.trigger();
    assert!(matches!(feed.next().await, FeedEvent::Lost(_)));
    served.await.unwrap();
    vmapi.stop().await;
}

#[tokio::test] // M30
async fn a_raw_query_under_a_dns_name_reaches_vmapi() {
    let world = world().await;
    let (listener, address) = daemon::http::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let shutdown = Shutdown::new();
    let server = Server::new(Limits::default(), shutdown.clone()).with_first_line(first_line);
    let served = tokio::spawn(server.under_any_name().serve(listener, world.routes.clone()));
    let mut socket = TcpStream::connect(address).await.unwrap();
    let target = r#"/vms?predicate={"eq":["alias","<a>"]}"#;
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: vmapi.dc.example\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let sent = world.vmapi.requests().pop().unwrap().target();
    let query = url::form_urlencoded::parse(sent.split_once('?').unwrap().1.as_bytes());
    let predicate = query.into_owned().next().unwrap().1;
    assert_eq!(format!("/vms?predicate={predicate}"), target);
    shutdown.trigger();
    served.await.unwrap();
}

#[tokio::test(start_paused = true)] // M31 R7
async fn a_migrating_vm_is_not_changed_by_others() {
    let world = world().await;
    let post = async |action: &str| {
        world.ask("POST", &format!("/vms/{VM}?action={action}"), json!({})).await
    };
    assert_eq!(post("stop").await.0, 501, "the mock's answer");
    for (state, target, is_refused, is_delete_refused) in [
        ("running", SERVER, true, true),
        ("queued", SERVER, false, true),
        ("paused", SERVER, false, true),
        ("scheduled", SERVER, false, true),
        ("failed", SERVER, false, true),
        ("failed", "", false, false),
        ("successful", SERVER, false, true),
        ("aborted", SERVER, false, false),
    ] {
        let target = Some(target).filter(|it| !it.is_empty());
        let mut record = record(json!({"vm_uuid": VM, "state": state, "phase": "sync"}));
        record.target_server_uuid = target.map(|it| it.parse().unwrap());
        world.keep(&record).await;
        for action in
            ["start", "stop", "reboot", "update", "add_nics", "create_snapshot", "delete_snapshot"]
        {
            let (status, body) = post(action).await;
            assert_eq!(status == 409, is_refused, "{state} {action} {body}");
            if is_refused {
                let text = body["message"].as_str().unwrap();
                assert!(text.contains(&record.id.to_string()) && text.contains(state), "{text}");
            }
        }
        // Nothing could bring these over any more.
        for action in ["reprovision", "rollback_snapshot"] {
            let waits = ["queued", "paused", "scheduled"].contains(&state);
            let is_refused = is_refused || waits || state == "failed" && target.is_some();
            assert_eq!(post(action).await.0 == 409, is_refused, "{state} {action}");
        }
        // No service does the rounds here: what waits is not aborted in time.
        let (status, _) = world.ask("DELETE", &format!("/vms/{VM}"), json!({})).await;
        assert_eq!(status == 409, is_delete_refused, "{state}");
        let whole = json!({"uuid": VM, "server_uuid": SERVER, "state": "running"});
        assert_eq!(world.ask("PUT", &format!("/vms/{VM}"), whole).await.0, 200);
    }
}

#[tokio::test] // M32
async fn no_other_client_writes_the_records() {
    let world = world().await;
    let record = record(json!({"vm_uuid": VM})).to_json();
    let base = format!("/migrations/{VM}");
    let statuses = [
        world.ask("POST", &format!("{base}/store"), record).await.0,
        world.ask("POST", &format!("{base}/progress"), json!({"type": "progress"})).await.0,
        world
            .ask("POST", &format!("{base}/updateVmServerUuid"), json!({"server_uuid": SERVER}))
            .await
            .0,
    ];
    assert_eq!(statuses, [403, 403, 403]);
}

#[tokio::test] // M173
async fn what_a_path_of_its_own_ignores_is_named() {
    let world = world().await;
    for (path, named) in [
        ("/settings?cn=x&limt=3", Some("cn, limt")),
        ("/settings", None),
        // VMAPI's own paths say nothing.
        ("/migrations?limt=3", None),
    ] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let answer = call(world.routes.clone(), request).await;
        let ignored = answer.headers().get("migration-service-ignored");
        assert_eq!(ignored.map(|it| it.to_str().unwrap()), named, "{path}");
    }
}

/// A store that gives no answer while this is set.
#[derive(Debug, Default)]
struct Away(AtomicBool);

impl Faults for Away {
    fn next(&self, _: store::Call) -> Fault {
        if self.0.load(Ordering::Relaxed) { Fault::Never } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)] // M58
async fn a_store_that_is_away_is_reported_before_the_client_gives_up() {
    let away = Arc::new(Away::default());
    let world = world_on(store::Store::in_memory().unwrap().with_faults(away.clone())).await;
    let pages = crate::pages::router(world.service);
    let ask = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        tokio::time::timeout(Duration::from_secs(4), call(pages.clone(), request)).await.unwrap()
    };
    assert_eq!(read(ask("/status").await).await["migrations"], json!([]));
    away.0.store(true, Ordering::Relaxed);
    let page = read(ask("/status").await).await;
    let told = page["alarms"][0].as_str().unwrap();
    assert!(
        told.contains("cannot read its records") && told.ends_with("svcs -L migration-service")
    );
    assert_eq!(page["migrations"], Value::Null, "what is not known is not nothing");
    let metrics = to_bytes(ask("/metrics").await.into_body(), 1 << 20).await.unwrap();
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    for line in ["migration_service_store_up 0.0", "migration_service_rounds_age_seconds -1.0"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}
