// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Ports, sockets and limits of the daemon, and where it may run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{A, FakeNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use vminfod::config::{Config, Socket};
use vminfod::service::place::{Misplaced, check_on};

#[tokio::test(flavor = "multi_thread")]
async fn unix_socket_answers_the_same_with_its_mode() {
    let node = FakeNode::one();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vminfod.sock");
    let socket = Some(Socket { path: path.clone(), mode: 0o640 });
    let served = node.serve_as(Config { socket, ..node.config() }).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /vms HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (_, plain) = served.get("/vms").await;
    let is_same = answer.contains(plain.trim_matches(['[', ']']));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && is_same, "{answer}");

    // A second daemon neither takes the socket over nor goes on without it.
    let socket = Some(Socket { path: path.clone(), mode: 0o640 });
    let second = node.refused(Config { socket, ..node.config() }).await;
    assert!(second.contains("another process answers on this socket"), "{second}");
    drop(served);
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_addresses_need_force() {
    let node = FakeNode::new();
    let config = Config { listen: "0.0.0.0:0".parse().unwrap(), ..node.config() };
    let refused = node.refused(config.clone()).await;
    assert!(refused.contains("listen_beyond_loopback"), "{refused}");
    let _served = node.serve_as(Config { listen_beyond_loopback: true, ..config }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_only_clients_of_this_node() {
    let node = FakeNode::new();
    let served = node.serve().await;
    let status = async |headers: &str| -> u16 {
        let request = format!("GET /vms HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        served.raw(&request).await.split(' ').nth(1).unwrap().parse().unwrap()
    };
    for headers in [
        "",
        "Host: localhost:9091\r\n",
        "Host: [::1]:9090\r\n",
        "Host: localhost:9090\r\nOrigin: http://localhost:9090\r\n",
        "Host: localhost:9090\r\nSec-Fetch-Site: same-origin\r\n",
    ] {
        assert_eq!(status(headers).await, 200, "{headers}");
    }
    for headers in [
        "Host: 10.1.2.3:9090\r\n",
        "Host: node.example.com\r\n",
        "Host: headnode:9090\r\n",
        "Host: localhost:9090\r\nOrigin: http://localhost:8080\r\n",
        "Host: localhost:9090\r\nOrigin: null\r\n",
        "Host: localhost:9090\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        assert_eq!(status(headers).await, 403, "{headers}");
    }
}

#[tokio::test] // S111
async fn runs_on_a_real_node_only_as_root_in_the_global_zone() {
    let node = FakeNode::new();
    let check = async |system: &str, root: &str, user: u32| {
        check_on(system, Path::new(root), user, &node).await
    };
    assert!(check("illumos", "/", 0).await.is_ok());
    assert!(matches!(check("illumos", "/", 101).await, Err(Misplaced::User(101))));
    // In a zone, zoneadm knows that zone alone.
    node.with(|state| state.zoneadm = vec![format!("5:{A}:running:/::joyent:excl:6")]);
    assert!(matches!(check("illumos", "/", 0).await, Err(Misplaced::Zone)));
    node.with(|state| state.zoneadm.clear());
    assert!(matches!(check("illumos", "/", 0).await, Err(Misplaced::Zone)));
    // On other systems, or with another root, it is not checked.
    assert!(check("illumos", "/node", 101).await.is_ok());
    assert!(check("linux", "/", 101).await.is_ok());
}
