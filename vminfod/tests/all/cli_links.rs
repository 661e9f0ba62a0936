// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The program as a link called `vminfo` or `vmadm`: the read-only part of the shipped tool.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::common::{FakeNode, Served};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const UUID: &str = "0a000000-0000-4000-8000-000000000001";
const LIMIT: Duration = Duration::from_secs(30);

/// The program by another name, for a daemon on a node with one VM.
struct Link {
    path: PathBuf,
    url: String,
}

impl Link {
    async fn new(name: &str) -> (FakeNode, Served, Link) {
        let node = FakeNode::new();
        node.add_zone(UUID, "running", Some(7), "web");
        let served = node.serve().await;
        let (path, url) = (node.path(name), served.url.clone());
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vminfod"), &path).unwrap();
        (node, served, Link { path, url })
    }

    fn command(&self, args: &[&str]) -> Command {
        #[allow(clippy::disallowed_methods)] // the program under test
        let mut command = Command::new(&self.path);
        command.args(args).env("VMINFOD_URL", &self.url).env_remove("VMINFOD_CONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    async fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = tokio::time::timeout(LIMIT, self.command(args).output()).await;
        let Output { status, stdout, stderr } = output.expect("it ends").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn vminfo_prints_as_shipped() {
    let (_node, served, link) = Link::new("vminfo").await;
    // An open listener, since its lines are part of the status.
    let listener = served.events().await;
    assert_eq!(link.run(&["ping"]).await, (Some(0), "pong\n".into(), String::new()));
    for args in [&["status"][..], &["status", "-f"]] {
        let (code, stdout, stderr) = link.run(args).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.starts_with("state: running (working)\npid: "), "{stdout}");
        assert!(stdout.contains("\nnumVms: 1\nqueue\n  paused: false\n  idle: "), "{stdout}");
        assert!(stdout.contains("\neventsListeners: (1 listeners)\n  - "), "{stdout}");
        assert!(stdout.ends_with(" ago\n\n"), "{stdout}");
        assert_eq!(stdout.contains("\nfswatcher\n  running: true\n"), args.len() == 2, "{stdout}");
    }
    let (code, vms, _) = link.run(&["vms"]).await;
    let (_, vm, _) = link.run(&["vm", UUID]).await;
    let parsed: Value = serde_json::from_str(&vms).unwrap();
    assert_eq!((code, &parsed[0]["alias"]), (Some(0), &Value::from("web")));
    assert_eq!(parsed[0], serde_json::from_str::<Value>(&vm).unwrap());
    let wrong = link.run(&["vm", "nobody"]).await;
    assert_eq!(wrong, (Some(1), String::new(), "bad statusCode: 404\n".into()));
    let (code, stdout, stderr) = link.run(&["status", "-q"]).await;
    assert_eq!((code, stderr.as_str()), (Some(1), "illegal option -- q\n"));
    assert!(stdout.starts_with("Usage: vminfo [command] [args]\n"), "{stdout}");
    drop(listener);
    drop(served);
    let down = link.run(&["ping"]).await;
    assert_eq!(down, (Some(1), String::new(), "connect ECONNREFUSED\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn vmadm_reads_and_refuses_what_writes() {
    let (_node, _served, link) = Link::new("vmadm").await;
    let (code, stdout, stderr) = link.run(&["list", "-p", "-o", "uuid,alias"]).await;
    assert_eq!((code, stdout, stderr), (Some(0), format!("{UUID}:web\n"), String::new()));
    let (code, stdout, _) = link.run(&["lookup", "-1", "alias=~^W"]).await;
    assert_eq!((code, stdout), (Some(0), format!("{UUID}\n")));
    let (code, stdout, _) = link.run(&["json", UUID]).await;
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("{\n  \"zonename\": "), "{stdout}");
    let (code, stdout, stderr) = link.run(&["help"]).await;
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    let first = format!("Usage: {} <command> [options]\n", link.path.display());
    assert!(stderr.starts_with(&first), "{stderr}");
    let (code, stdout, stderr) = link.run(&["delete", UUID]).await;
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("only reads"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vmadm_events_are_written_at_once_keyed_by_zone_name() {
    let (node, served, link) = Link::new("vmadm").await;
    let mut child = link.command(&["events", "-rj", UUID]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("in time");
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    };
    let ready = next().await;
    assert_eq!((&ready["type"], &ready["vms"][UUID]["alias"]), (&"ready".into(), &"web".into()));
    node.tags(UUID, &json!({"role": "db"}));
    let event = next().await;
    assert_eq!(event["type"], "modify");
    assert_eq!(event["vm"]["tags"]["role"], "db");
    drop(served);
    let status = tokio::time::timeout(LIMIT, child.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(1), "a stream that ends is a failure");
}
