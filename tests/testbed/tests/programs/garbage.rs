// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What answers at a daemon's address is another program, or broken: each command says so in one line and
//! ends with 1. It prints nothing that could be taken for the state of the node.

use std::path::Path;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};

use super::common::run;

const VM: &str = "11111111-1111-4111-8111-111111111111";

/// Commands that read a daemon at `--url`, without a configuration.
const READS: [(&str, &[&str]); 17] = [
    ("vminfod", &["ping"]),
    ("vminfod", &["status"]),
    ("vminfod", &["status", "-H"]),
    ("vminfod", &["vms"]),
    ("vminfod", &["vms", "-p", "-o", "uuid"]),
    ("vminfod", &["vm", VM]),
    ("vminfod", &["vm", VM, "-H"]),
    ("vminfod", &["why", VM]),
    ("vminfod", &["list", "-H"]),
    ("vminfod", &["get", VM]),
    ("net-agent", &["status"]),
    ("net-agent", &["status", "-H"]),
    ("vm-agent", &["status", "-H"]),
    ("kvmd", &["status"]),
    ("kvmd", &["verdicts"]),
    ("kvmd", &["watch"]),
    ("console", &["status"]),
];

/// What a stranger may answer; the last one is cut off.
fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let json = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let failed =
        "HTTP/1.1 500 Oops\r\ncontent-length: 12\r\nconnection: close\r\n\r\nboom\nboom\n\x1b[";
    let mut cut = json(&format!("[\"{}\"]", "x".repeat(5000)));
    cut.truncate(1000);
    vec![
        ("a page", json("<html>not here</html>")),
        ("numbers", json("[1, 2]")),
        ("an empty object", json("{}")),
        ("null", json("null")),
        ("fields of another program", json(r#"{"vms": "7", "status": [], "nics": null}"#)),
        ("brackets", json(&"[".repeat(100_000))),
        ("bytes", [0, 255, 22, 3].repeat(100)),
        ("a failure", failed.as_bytes().to_vec()),
        ("half an answer", cut),
    ]
}

/// Gives every connection this answer; returns its URL. It ends with the runtime.
async fn stranger(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            give(socket, &answer).await;
        }
    });
    url
}

/// The same on a control socket.
fn stranger_at(path: &Path, answer: Vec<u8>) {
    let _absent = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            give(socket, &answer).await;
        }
    });
}

async fn give(mut socket: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    let _ = socket.read(&mut [0; 4096]).await;
    let _ = socket.write_all(answer).await;
    let _ = socket.shutdown().await;
}

/// The command fails with one line.
async fn refuses(program: &str, args: &[&str], what: &str) {
    let this = format!("@{program}");
    let done = run(&[&[&*this], args].concat()).await;
    let (code, out, told) = (done.code, done.stdout, done.stderr);
    assert_eq!((code, &*out), (Some(1), ""), "{program} {args:?} took {what}: {told}");
    assert_eq!(told.trim_end().lines().count(), 1, "{program} {args:?}, {what}: {told}");
    assert!(told.len() < 1500 && !told.contains('\u{1b}'), "{program} {args:?}: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_at_a_daemons_address_is_not_taken_for_it() {
    for (what, answer) in answers() {
        let url = stranger(answer).await;
        for (program, args) in READS {
            refuses(program, &[args, &["--url", &url]].concat(), what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_at_a_control_socket_is_not_taken_for_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    let file = dir.path().join("c.json");
    let nowhere = "http://127.0.0.1:1";
    let config = json!({"napi": {"url": nowhere}, "vmapi": {"url": nowhere}, "vmapi_url": nowhere,
        "cn_uuid": VM, "state_dir": dir.path(), "control": {"socket": socket}});
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    for (what, answer) in answers() {
        stranger_at(&socket, answer);
        let asks: [(&str, &[&str]); 5] = [
            ("net-agent", &["plan", "--fresh"]),
            ("net-agent", &["approve", "1"]),
            ("net-agent", &["nic", "90:b8:d0:00:00:01"]),
            ("vm-agent", &["approve", "1"]),
            ("vm-agent", &["vm", VM]),
        ];
        for (program, args) in asks {
            refuses(program, &[args, &["--config", file]].concat(), what).await;
        }
    }
}
