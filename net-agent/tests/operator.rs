// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operator's side over real sockets: the guard of the port, the socket's mode, plan and
//! approval by the command line, and what it says when nothing runs.

#![allow(clippy::unwrap_used)] // a test: a panic is a failed test

mod world;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use daemon::{Lock, Shutdown, Tasks};
use net_agent::agent::Agent;
use net_agent::holds::HoldsFile;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use world::{CN, HOME, World};

struct Desk {
    world: World,
    agent: Arc<Agent>,
    address: std::net::SocketAddr,
    file: std::path::PathBuf,
    shutdown: Shutdown,
    tasks: Tasks,
    /// NAPI for the command line, which asks it where no agent runs.
    _napi: mocks::napi::Server,
}

/// An agent with short waits whose brake is on: eight leaks, and VMAPI knows of none.
async fn desk() -> Desk {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({}));
    for n in 2..=9 {
        world.nic(n, &format!("gone{n}"), json!({}));
    }
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    let over = json!({"startup_delay": {"min": "1ms", "max": "1ms"}, "second_look": "1ms",
        "resync": "100ms", "pace": {"per_second": 1000}, "status": {"listen": address.to_string()}});
    let agent = world.agent(HOME, over.clone());
    let any = "127.0.0.1:0".parse().unwrap();
    let napi = mocks::napi::Server::with_store(any, world.napi.clone()).await.unwrap();
    let mut config = json!({"napi": {"url": napi.url()}, "vmapi": {"url": "none"},
        "vminfod": {"url": "http://127.0.0.1:9", "trust_tcp": true}, "cn_uuid": CN,
        "state_dir": agent.parts.config.basics.places.state_dir});
    config.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
    let file = world.dir.path().join("net-agent.config.json");
    std::fs::write(&file, config.to_string()).unwrap();
    std::fs::create_dir_all(&agent.parts.config.basics.places.state_dir).unwrap();
    let shutdown = Shutdown::new();
    let tasks = Tasks::new(shutdown.clone());
    agent.listen(port, &tasks, &shutdown);
    let run = Arc::clone(&agent).run(shutdown.clone());
    tasks.spawn("agent", run);
    Desk { world, agent, address, file, shutdown, tasks, _napi: napi }
}

impl Desk {
    /// Runs the command line; gives its exit code as text.
    async fn cli(&self, args: &[&str]) -> String {
        let mut all: Vec<std::ffi::OsString> = vec!["net-agent".into()];
        all.extend(args.iter().map(Into::into));
        all.extend(["--config".into(), self.file.clone().into()]);
        let code = tokio::task::spawn_blocking(|| net_agent::cli::run(all.into_iter())).await;
        format!("{:?}", code.unwrap())
    }

    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..2000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what}: {}", self.agent.status_json().await);
    }
}

const DONE: &str = "ExitCode(unix_exit_status(0))";
const FAILED: &str = "ExitCode(unix_exit_status(1))";
const USAGE: &str = "ExitCode(unix_exit_status(2))";

#[tokio::test(flavor = "multi_thread")] // C36–C39
async fn approves_only_through_the_socket() {
    let desk = desk().await;
    desk.until("the brake is on", || desk.agent.parts.brake.sentence().is_some()).await;
    let socket = &desk.agent.parts.config.basics.places.control_socket;
    assert_eq!(std::fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(desk.cli(&["plan"]).await, DONE);
    assert!(desk.agent.parts.brake.offered().is_none(), "a look reads no record");
    let status = desk.agent.status_json().await;
    assert!(status["waiting_for"].to_string().contains("an operator"), "{status}");
    assert_eq!(desk.cli(&["plan", "--fresh"]).await, DONE);
    let (offer, _) = desk.agent.parts.brake.offered().unwrap();
    let body = json!({"id": offer.id}).to_string();
    for (method, path) in [("POST", "/approve"), ("POST", "/plan"), ("DELETE", "/holds")] {
        let length = body.len();
        let answer = desk
            .raw(&format!(
                "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        let status = answer.split(' ').nth(1).unwrap();
        assert!(matches!(status, "404" | "405"), "{method} {path}: {answer}");
        assert!(answer.contains("\"code\""), "{method} {path}: {answer}");
    }
    assert_eq!(desk.cli(&["approve", "0123456789abcdef"]).await, FAILED);
    assert!(desk.world.writes().is_empty());
    assert_eq!(desk.cli(&["approve", &offer.id]).await, DONE);
    desk.until("the approved ones go", || desk.world.writes().len() == 8).await;
    desk.until("none is left", || {
        desk.agent.parts.brake.approval_given().is_some_and(|approval| approval.left == 0)
    })
    .await;
    let approved = desk.agent.status_json().await["approved"].clone();
    assert_eq!((&approved["count"], approved["by"] == "somebody"), (&json!(8), false));
    assert!(desk.world.has(1));
    let history = net_agent::history::Query::default();
    let done = desk.agent.parts.history.read(&history).unwrap();
    assert_eq!(done.iter().filter(|entry| entry.is_delete()).count(), 8);
    assert!(done.iter().all(|entry| !entry.why.is_empty() && !entry.old.is_empty()), "{done:?}");
    let gone = desk.agent.explain("f20000000002".parse().unwrap()).await;
    assert!(gone["reason"].to_string().contains("this agent deleted it at"), "{gone}");
    for verb in [
        &["nic", "F2-00-00-00-00-01"][..],
        &["nic", "f20000000002", "-j"],
        &["plan", "-j"],
        &["plan", "--all"],
        &["status", "-j"],
        &["reap", "--dry-run"],
        &["history"],
        &["history", "--since", "2h", "--mac", "F2-00-00-00-00-02", "-o", "ago,why"],
        &["hold", "--reason", "test", "--for", "1h"],
        &["extend", "--for", "2h"],
        &["holds", "-j"],
        &["release"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ] {
        assert_eq!(desk.cli(verb).await, DONE, "{verb:?}");
    }
    for verb in [
        &["nic", "nonsense"][..],
        &["plan", "--mac", "x"],
        &["nothing"],
        &["history", "--since", "soon"],
        &["approve"],
        &["hold", "--vm", "not-a-uuid", "--reason", "x"],
        &["hold", "--reason", " "],
        &["hold", "--reason", "x", "--for", "2 moons"],
        &["hold", "--reason", "x", "--for", "0s"],
    ] {
        assert_eq!(desk.cli(verb).await, USAGE, "{verb:?}");
    }
    desk.shutdown.trigger();
    assert!(desk.tasks.drain(Duration::from_secs(10)).await);
    assert!(!desk.agent.parts.config.basics.places.control_socket.exists());
    for (verb, code) in [
        (&["status"][..], FAILED),
        (&["approve", "0123456789abcdef"], FAILED),
        (&["nic", "f20000000001"], DONE),
        (&["hold", "--reason", "off"], DONE),
        (&["extend", "--for", "1h"], DONE),
        (&["release"], DONE),
        (&["extend", "--for", "1h"], FAILED),
        (&["release"], FAILED),
    ] {
        assert_eq!(desk.cli(verb).await, code, "nothing runs: {verb:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn port_refuses_requests_from_browsers() {
    let desk = desk().await;
    for path in ["/ping", "/status", "/plan", "/holds", "/metrics"] {
        let head = format!("GET {path} HTTP/1.0\r\nHost: localhost:5311\r\n");
        assert!(desk.raw(&format!("{head}\r\n")).await.contains(" 200 "), "{path}");
        for foreign in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
            assert!(desk.raw(&format!("{head}{foreign}\r\n")).await.contains(" 403 "), "{path}");
        }
        let rebound = format!("GET {path} HTTP/1.0\r\nHost: rebound.example\r\n\r\n");
        assert!(desk.raw(&rebound).await.contains(" 403 "), "{path}");
    }
    let answer = desk.raw("GET /status HTTP/1.0\r\n\r\n").await;
    let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let history: Vec<_> = page["init_history"].as_array().unwrap().iter().collect();
    assert_eq!(history[0]["h_name"], "InitializingServer");
    assert!(page["now"].as_u64().is_some() && page["cn_uuid"] == CN);
    let metrics = desk.raw("GET /metrics HTTP/1.0\r\n\r\n").await;
    assert!(metrics.contains("net_agent_brake_on ") && metrics.ends_with("# EOF\n"), "{metrics}");
    desk.shutdown.trigger();
    assert!(desk.tasks.drain(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread")] // race 29
async fn second_copy_does_not_start() {
    let desk = desk().await;
    let _first = Lock::take(&desk.agent.parts.config.basics.places.state_dir.join("lock")).unwrap();
    assert_eq!(desk.cli(&["serve"]).await, FAILED);
    desk.shutdown.trigger();
    desk.tasks.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")] // C39
async fn holds_are_placed_and_released_beside_a_configuration_that_cannot_be_used() {
    let desk = desk().await;
    let dir = &desk.agent.parts.config.basics.places.state_dir;
    let file = HoldsFile::new(dir);
    let broken = json!({"state_dir": dir, "pace": {"per_second": "many"}, "napi": 7});
    std::fs::write(&desk.file, broken.to_string()).unwrap();
    assert_eq!(desk.cli(&["plan"]).await, USAGE);
    let hold = ["hold", "--for", "2h", "--reason", "the file is being edited"];
    assert_eq!(desk.cli(&hold).await, DONE);
    let held = file.read().unwrap();
    assert!(held.covering("any", daemon::wall::now()).is_some(), "{held:?}");
    let status = desk.agent.status_json().await;
    assert!(status["holds"].to_string().contains("being edited"), "{status:#}");
    for line in [&["holds"][..], &["extend", "--for", "3h"], &["release"]] {
        assert_eq!(desk.cli(line).await, DONE, "{line:?}");
    }
    assert!(file.read().unwrap().holds.is_empty());
    desk.shutdown.trigger();
    desk.tasks.drain(Duration::from_secs(10)).await;
}
