// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node answers: to the honest node's agent, to the service, and where another node is asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use daemon::Shutdown;
use daemon::http::{Acceptor, Limits, Server, listen, reply_json};
use http::StatusCode;
use migration_core::intent::End;
use migration_core::protocol::{About, Accepted, Datasets, State, What};
use migration_core::sync_plan::{Row, Side, Token};
use sdc_clients::vminfod::VmFields as _;
use serde_json::{Value, json};
use simnode::stream::Begin;
use simnode::streams::token;
use testbed::moving::subject::VM;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use trust::Doors;
use uuid::Uuid;

use super::super::common::{centre::Centre, until};
use super::node::{COPY, Compromised};
use super::rows::Rows;
use super::service::followed;

/// What is answered to a path.
type Answers = Arc<dyn Fn(&str) -> Value + Send + Sync>;

/// Somebody with the node's key who listens at an address.
struct Listening {
    heard: Arc<Mutex<Vec<String>>>,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
}

impl Listening {
    async fn at(node: &Compromised, address: SocketAddr, answers: Answers) -> Listening {
        rig::port::refuses(address).await.unwrap();
        let (listener, _) = listen(address).await.unwrap();
        let doors = Acceptor::Secure(listener, Arc::new(Doors::new(&node.holder)));
        let (heard, shutdown) = (Arc::<Mutex<Vec<String>>>::default(), Shutdown::new());
        let notes = Arc::clone(&heard);
        let answer = move |request: http::Request<axum::body::Body>| {
            let path = request.uri().path().to_owned();
            let answer = answers(&path);
            notes.lock().unwrap().push(path);
            std::future::ready(reply_json(StatusCode::OK, &answer))
        };
        let server = Server::new(Limits::default(), shutdown.clone()).under_any_name();
        let serving = tokio::spawn(server.serve(doors, Router::new().fallback(answer)));
        Listening { heard, shutdown, serving }
    }

    async fn end(self) {
        self.shutdown.trigger();
        self.serving.await.unwrap();
    }

    fn has_heard(&self, part: &str) -> bool {
        self.heard.lock().unwrap().iter().any(|path| path.contains(part))
    }
}

/// A data port with the node's key: its address, and what was sent there.
async fn data_port(node: &Compromised) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((node.at.ip(), 0)).await.unwrap();
    let (at, came) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
    let (doors, all) = (Doors::new(&node.holder), Arc::clone(&came));
    tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            let Ok(mut secured) = doors.open(stream, from.ip()).await else { continue };
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = secured.stream.read(&mut bytes).await {
                all.lock().unwrap().extend(&bytes[..len]);
            }
        }
    });
    (at, came)
}

/// The VM that is sent to the node, by an order of the service.
fn about(revision: u64) -> About {
    let vm = VM.parse().unwrap();
    About { migration: Uuid::from_u128(0x5e4d), revision, nonce: None, vm, end: End::Source }
}

/// The honest node's agent sends a VM to the node.
pub async fn to_an_agent(centre: &Centre, node: &Compromised, others: SocketAddr, rows: &mut Rows) {
    let honest = centre.lab.node();
    let root = format!("zones/{VM}");
    let secret = b"what another tenant has".as_slice();
    honest.write_file(&format!("zones/{COPY}"), "root/secret", secret).unwrap();
    honest.zfs(|all| all.snapshot(&format!("zones/{COPY}@vmsnap-a"), false)).unwrap();
    let all = honest.datasets().unwrap();
    let guid = |name: &str| all.get(name).unwrap().guid().unwrap();
    let mut side = Side { datasets: vec![root.clone()], ..Side::default() };
    let origin = all.get(&root).unwrap().get("origin").to_owned();
    if origin.contains('@') {
        let (dataset, name) = origin.split_once('@').unwrap();
        let (dataset, name) = (dataset.to_owned(), name.to_owned());
        side.snapshots.push(Row { dataset, name, guid: guid(&origin), ..Row::default() });
    }
    let mut stolen =
        Begin::new(&format!("zones/{COPY}"), "vmsnap-a", guid(&format!("zones/{COPY}@vmsnap-a")));
    stolen.resume = Some(0);
    let text = token(&stolen);
    let with_token =
        Side { tokens: vec![Token { dataset: root.clone(), text, guid: 0 }], ..side.clone() };
    let (at, came) = data_port(node).await;
    let is_secret = |came: &[u8]| came.windows(secret.len()).any(|part| part == secret);
    let accepted = |address: SocketAddr, token: &str| {
        json!(Accepted { address: address.to_string(), token: token.to_owned() })
    };
    let (good, hidden) = ("0".repeat(32), Side { datasets: Vec::new(), ..side });
    let long = json!({"side": {}, "filler": "x".repeat(100 << 20)});
    for (revision, (name, received, streams)) in (1..).zip([
        ("a token of another VM's snapshot", json!(datasets(&with_token)), accepted(at, &good)),
        ("no token", json!(datasets(&hidden)), accepted(at, "no token")),
        ("another node's data port", json!(datasets(&hidden)), accepted(others, &good)),
        ("a receipt of nothing", json!(datasets(&hidden)), accepted(at, &good)),
        ("an answer without end", long, accepted(at, &good)),
        ("no datasets", json!(["zones"]), accepted(at, &good)),
    ]) {
        let answers = move |path: &str| match path {
            "/received" => received.clone(),
            "/streams" => streams.clone(),
            _ => json!({}),
        };
        let listening = Listening::at(node, node.at, Arc::new(answers)).await;
        let order = What::Send { number: 1, to: node.cn, mbps: None };
        let mut doing = node.ordered(about(revision), order.clone()).await;
        while doing.state == State::Running {
            doing = node.ordered(about(revision), order.clone()).await;
        }
        let leaked = is_secret(&came.lock().unwrap());
        let got = match doing.state {
            _ if leaked => "sent",
            State::Failed { .. } => "refused",
            _ => "done",
        };
        rows.row(name, "refused", got);
        came.lock().unwrap().clear();
        assert!(listening.has_heard("/received"));
        listening.end().await;
    }
    for about in [about(100), super::node::about(100)] {
        assert_eq!(node.ordered(about, What::Over).await.state, State::Done);
    }
}

fn datasets(side: &Side) -> Datasets {
    Datasets { side: side.clone(), ..Datasets::default() }
}

/// The service asks the node which migrations it has open.
pub async fn to_the_service(centre: &mut Centre, node: &Compromised, rows: &mut Rows) {
    let (foreign, vm) = (node.foreign, VM.to_owned());
    let honest = centre.lab.node().cn_uuid().to_owned();
    let store = centre.lab.vmapi.store();
    let another =
        store.all().into_iter().find(|it| it["server_uuid"] == *honest && it["uuid"] != VM);
    let another = another.unwrap()["uuid"].as_str().unwrap().to_owned();
    let claimed = another.clone();
    let answers = move |path: &str| match path {
        "/migrations" => json!([
            {"migration": foreign, "vm": vm, "end": "target", "revision": u64::MAX / 2},
            {"migration": Uuid::from_u128(0xbad), "vm": claimed, "end": "target", "revision": 1, "instead": honest},
        ]),
        _ => json!({}),
    };
    let listening = Listening::at(node, node.at, Arc::new(answers)).await;
    centre.lab.end("migration-service", false).await.unwrap();
    centre.lab.start_migration_service().await.unwrap();
    let is_shown =
        async || centre.typed("migration-service status").await.stdout.contains(&another);
    until("the service shows what the node claims", is_shown).await;
    rows.row("a later revision of another migration, answered", "followed", followed(centre).await);
    let estimate = centre.typed(&format!("sdc-migrate estimate {another}")).await;
    let got = if estimate.code == Some(0) { "followed" } else { "stopped" };
    rows.row("a migration of another node's VM", "followed", got);
    let vm = centre.lab.client().vm(&another, true).await.unwrap();
    let is_well = vm.state() == Some("running") && !vm.is_hidden();
    let got = if is_well { "as it was" } else { "stopped or hidden" };
    rows.row("that another node's copy was replaced", "as it was", got);
    listening.end().await;
}

/// The node answers where CNAPI has the honest one: nobody tells it anything.
pub async fn for_another_node(centre: &mut Centre, node: &Compromised, rows: &mut Rows) {
    let volume = centre.volume("mine").await;
    centre.lab.end("migration-agent", true).await.unwrap();
    let listening = Listening::at(node, node.other_at, Arc::new(|_: &str| json!({}))).await;
    let snapshot =
        format!("sdc-volapi --bare -f /volumes/{volume}/snapshots -d '{{\"name\":\"a\"}}'");
    for (name, line) in [
        ("an answer of another node to the service", format!("sdc-migrate estimate {VM}")),
        ("an answer of another node to volapi", snapshot),
    ] {
        centre.typed(&line).await;
        let got =
            if listening.heard.lock().unwrap().is_empty() { "nothing heard" } else { "heard" };
        rows.row(name, "nothing heard", got);
    }
}
