// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs send` and `zfs receive` as processes and in process: the same bytes, words and datasets.

#![allow(clippy::unwrap_used)] // a failed step of a test is a failed test
#![allow(clippy::disallowed_methods)] // it starts the node's executables

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use daemon::command::{Call, Commands, Launch, Pipes, Program};
use simnode::in_process::InProcess;
use simnode::streams::fault::{Effect, End};
use simnode::{CreateOptions, Node};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How a command ended: status, stdout and stderr.
type Ended = (i32, Vec<u8>, String);

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// A node with a VM and two snapshots of it.
fn node(dir: &TempDir, name: &str) -> Node {
    let program = Some(env!("CARGO_BIN_EXE_simnode").into());
    let node = Node::create(&CreateOptions {
        vms: 0,
        program,
        ..CreateOptions::new(dir.path().join(name))
    })
    .unwrap();
    let commands = InProcess::new(&node);
    let zfs =
        |line: &str| assert_eq!(commands.answer(Program::Zfs, &words(line)).status, 0, "{line}");
    for line in ["create zones/vm", "create zones/vm/data", "set a:b=c zones/vm"] {
        zfs(line);
    }
    node.write_file("zones/vm", "etc/motd", &[b'x'; 70_000]).unwrap();
    zfs("snapshot -r zones/vm@1");
    node.write_file("zones/vm/data", "db", &[3; 200_000]).unwrap();
    zfs("snapshot -r zones/vm@2");
    node
}

/// Two nodes that are the same, to the second in which their snapshots were taken.
fn nodes(dir: &TempDir) -> (Node, Node) {
    let outside = node(dir, "outside");
    simnode::files::copy_tree(outside.dir(), &dir.path().join("inside")).unwrap();
    (outside, Node::open(dir.path().join("inside")).unwrap())
}

fn process(node: &Node, line: &str, stdin: &[u8]) -> Ended {
    let mut child = Command::new(node.tool("zfs"))
        .args(words(line))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // It may have seen enough before the end.
    let _ = pipe.write_all(stdin);
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), output.stdout, String::from_utf8(output.stderr).unwrap())
}

async fn in_process(node: &Node, line: &str, stdin: &[u8]) -> Ended {
    let commands = InProcess::new(node);
    let args = words(line);
    let pipes = match args[0].as_str() {
        "send" => Pipes::Out,
        "receive" => Pipes::In,
        _ => {
            let call = Call::new(Program::Zfs, args, Duration::from_secs(60));
            let output = commands.run(call).await.unwrap();
            return (output.status, output.stdout, String::from_utf8(output.stderr).unwrap());
        }
    };
    let mut running = commands.start(Launch::new(Program::Zfs, args, pipes)).unwrap();
    let _ = running.stdin.write_all(stdin).await;
    running.stdin = Box::new(tokio::io::sink());
    let (mut stdout, mut stderr) = (Vec::new(), String::new());
    running.stdout.read_to_end(&mut stdout).await.unwrap();
    running.stderr.read_to_string(&mut stderr).await.unwrap();
    (running.wait().await, stdout, stderr)
}

#[tokio::test]
async fn executables_and_in_process_commands_follow_the_same_rules() {
    let dir = TempDir::new().unwrap();
    let (outside, inside) = nodes(&dir);
    let stream = process(&outside, "send -R zones/vm@2", &[]).1;
    let part = &stream[..stream.len() / 2];
    let state = "get -r -H -p -o name,property,value,source type,guid,a:b,used,mounted,receive_resume_token zones";
    for (line, stdin) in [
        ("send -R zones/vm@2", &[][..]),
        ("send -i @1 zones/vm/data@2", &[]),
        ("send -n -P -R zones/vm@2", &[]),
        ("send zones/vm@none", &[]),
        ("send -q zones/vm@1", &[]),
        ("receive -u zones/copy", &stream),
        ("receive -u zones/copy", &stream),
        ("receive -u -s zones/part", part),
        (state, &[]),
        ("receive -A zones/part/data", &[]),
        ("receive -u zones/broken", part),
        ("receive", &[]),
        (state, &[]),
    ] {
        let expected = process(&outside, line, stdin);
        let got = in_process(&inside, line, stdin).await;
        assert_eq!(got.0, expected.0, "{line}: {} {}", got.2, expected.2);
        assert!(got.1 == expected.1, "{line}: another stdout");
        assert_eq!(got.2, expected.2, "{line}");
    }
}

#[tokio::test]
async fn a_fault_of_the_node_meets_executables_and_in_process_commands() {
    let dir = TempDir::new().unwrap();
    let (outside, inside) = nodes(&dir);
    for effect in [Effect::Ends, Effect::Flips] {
        let both = [&outside, &inside];
        both.iter().for_each(|node| node.fail_stream(End::Send, 30_000, effect).unwrap());
        let expected = process(&outside, "send zones/vm@1", &[]);
        assert_eq!(in_process(&inside, "send zones/vm@1", &[]).await, expected);
        assert_ne!(expected, process(&outside, "send zones/vm@1", &[]));
    }
    let stream = process(&outside, "send zones/vm@1", &[]).1;
    for effect in [Effect::Ends, Effect::Flips, Effect::NoSpace] {
        let both = [&outside, &inside];
        both.iter().for_each(|node| node.fail_stream(End::Receive, 30_000, effect).unwrap());
        let expected = process(&outside, "receive -u zones/copy", &stream);
        assert_eq!(expected.0, 1, "{}", expected.2);
        assert_eq!(in_process(&inside, "receive -u zones/copy", &stream).await, expected);
    }
}

#[test]
fn a_killed_receive_keeps_what_arrived_and_frees_its_dataset() {
    let dir = TempDir::new().unwrap();
    let node = node(&dir, "cn");
    let stream = process(&node, "send zones/vm/data@2", &[]).1;
    // It takes 100,000 bytes and then hangs.
    node.fail_stream(End::Receive, 100_000, Effect::Hangs).unwrap();
    let mut child = Command::new(node.tool("zfs"))
        .args(["receive", "-u", "-s", "zones/copy"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&stream[..120_000]).unwrap();
    let token = || process(&node, "get -Hp -o value receive_resume_token zones/copy", &[]).1;
    let has = |bytes: u64| {
        let rest = process(
            &node,
            &format!("send -nP -t {}", String::from_utf8(token()).unwrap().trim()),
            &[],
        );
        let said = String::from_utf8(rest.1).unwrap();
        let size = said.trim().rsplit('\t').next().and_then(|size| size.parse::<u64>().ok());
        size.is_some_and(|size| size < stream.len() as u64 - bytes)
    };
    // Its own lock says that it runs; until the bytes are there it is asked again.
    while !has(80_000) {
        std::thread::yield_now();
    }
    let busy = process(&node, "receive -u -F zones/copy", &stream);
    assert!(busy.0 == 1 && busy.2.contains("is busy"), "{busy:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let token = String::from_utf8(token()).unwrap();
    let rest = process(&node, &format!("send -t {}", token.trim()), &[]).1;
    let ended = process(&node, "receive -u -s zones/copy", &rest);
    assert_eq!(ended.0, 0, "{}", ended.2);
    let all = node.datasets().unwrap();
    let contents = |name: &str| node.contents(&all, name).unwrap();
    assert!(contents("zones/copy@2") == contents("zones/vm/data@2"));
}

#[test]
fn what_a_dry_run_says_is_what_is_sent() {
    const FILE: usize = 40 << 20;
    let bytes: Vec<u8> = (0..).flat_map(u32::to_le_bytes).take(FILE).collect();
    let dir = TempDir::new().unwrap();
    let node = node(&dir, "cn");
    node.write_file("zones/vm", "var/db", &bytes).unwrap();
    let said = |line: &str| String::from_utf8(process(&node, line, &[]).1).unwrap();
    said("snapshot zones/vm@3");
    for stream in ["zones/vm@3", "-i @2 zones/vm@3", "-i @1 zones/vm@2"] {
        let dry = said(&format!("send -n -P {stream}"));
        let size = dry.lines().find_map(|line| line.strip_prefix("size\t")).unwrap();
        let (size, sent) = (size.parse::<usize>().unwrap(), length(&node, stream));
        assert!(size.abs_diff(sent) <= (64 << 10) + sent / 50, "{stream}: {size} of {sent}");
    }
}

#[test]
fn a_list_says_what_is_there_now_and_refuses_what_no_dataset_has() {
    let dir = TempDir::new().unwrap();
    let node = node(&dir, "cn");
    let said = |line: &str| String::from_utf8(process(&node, line, &[]).1).unwrap();
    let listed = || said("list -Hp -o used,referenced zones/vm");
    let before = listed();
    node.write_file("zones/vm", "var/db", &vec![7; 40 << 20]).unwrap();
    let after = listed();
    assert_ne!(before, after);
    let got = said("get -Hp -o value used,referenced zones/vm");
    assert_eq!(after.trim().replace('\t', "\n"), got.trim());
    let wrong = process(&node, "list -Hp -o name,usd zones/vm", &[]);
    assert_eq!(wrong.0, 2);
    assert!(wrong.2.contains("invalid property 'usd'"), "{}", wrong.2);
}

/// How long the stream is.
fn length(node: &Node, stream: &str) -> usize {
    process(node, &format!("send {stream}"), &[]).1.len()
}

#[test]
fn a_sender_whose_reader_is_gone_fails() {
    let dir = TempDir::new().unwrap();
    let node = node(&dir, "cn");
    let mut child = Command::new(node.tool("zfs"))
        .args(["send", "zones/vm/data@2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 100]).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Broken pipe"));
}
