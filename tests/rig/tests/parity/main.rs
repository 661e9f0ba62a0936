// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated node's `zfs` is held to real ZFS: the same commands on both end alike, say the same
//! kind of thing, and leave the same snapshots and properties.

#![allow(clippy::unwrap_used)] // a failed step of a test is a failed test

mod story;

use std::collections::HashMap;

use daemon::command::Program;
use rig::Cn;
use simnode::in_process::InProcess;
use simnode::node::Zfs;
use simnode::streams::receive::receive;
use simnode::streams::send::{Then, send};
use simnode::{CreateOptions, Node};
use story::Part::{Flip, Percent, Whole};
use story::STORY;
use story::Step::{Prints, Receive, S, Send, Shows, T, WriteS, WriteT};
use tempfile::TempDir;

/// What the messages are told apart by; the first that fits counts.
const KINDS: [&str; 41] = [
    "most recent snapshot of",
    "has been modified",
    "is a clone",
    "destination has snapshots",
    "must specify -F",
    "local origin for clone",
    "out of space",
    "checksum mismatch",
    "invalid backup stream",
    "failed to read from stream",
    "incremental source (",
    "same filesystem",
    "not an earlier snapshot",
    "argument must be a snapshot",
    "dependent clones",
    "has children",
    "more recent snapshots",
    "already exists",
    "parent does not exist",
    "does not exist",
    "already mounted",
    "not currently mounted",
    "less than current used",
    "invalid property",
    "is readonly",
    "bad numeric value",
    "missing '@'",
    "cannot be inherited",
    "invalid character",
    "empty component",
    "leading slash",
    "trailing slash",
    "multiple '@'",
    "must be an absolute path",
    "component of 'mountpoint' is too long",
    "'mountpoint' is too long",
    "not applicable",
    "dataset is busy",
    "tag already exists",
    "no such tag",
    "too long",
];
/// Wrong usage, told apart further.
const USAGE: [&str; 3] = ["invalid option", "unrecognized command", "missing snapshot"];

/// How a command ended: its status and the kind of its message.
type Ended = (i32, String);

fn ended(status: i32, stderr: &str) -> Ended {
    let mut kinds = KINDS.iter().chain(&USAGE);
    let kind = kinds.find(|kind| stderr.contains(**kind));
    (status, if status == 0 { String::new() } else { kind.map_or(stderr, |kind| kind).to_string() })
}

/// A node of either sort.
trait Machine {
    fn zfs(&self, line: &str) -> (Ended, String);
    fn send(&self, line: &str) -> (Ended, Vec<u8>);
    fn receive(&self, line: &str, stream: &[u8]) -> Ended;
    fn write(&self, dataset: &str, path: &str, bytes: &[u8]);
}

impl Machine for Cn {
    fn zfs(&self, line: &str) -> (Ended, String) {
        let args = words(line);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = Cn::zfs(self, &args).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A command that aborts is ended by a signal.
        let status = output.status.code().unwrap_or(134);
        (ended(status, &said), String::from_utf8(output.stdout).unwrap())
    }

    fn send(&self, line: &str) -> (Ended, Vec<u8>) {
        let words = words(line);
        let words = words.iter().map(String::as_str);
        let args: Vec<&str> = std::iter::once("send").chain(words).collect();
        let output = Cn::zfs(self, &args).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        (ended(output.status.code().unwrap(), &said), output.stdout)
    }

    fn receive(&self, line: &str, stream: &[u8]) -> Ended {
        let words = words(line);
        let words = words.iter().map(String::as_str);
        let args: Vec<&str> = std::iter::once("receive").chain(words).collect();
        let output = self.zfs_with(&args, stream).unwrap();
        ended(output.status.code().unwrap(), &String::from_utf8_lossy(&output.stderr))
    }

    fn write(&self, dataset: &str, path: &str, bytes: &[u8]) {
        std::fs::write(self.path(dataset, path), bytes).unwrap();
    }
}

/// The arguments of a command; a blank, a tab and a line end in one are written `␠`, `␉` and `␊`.
fn words(line: &str) -> Vec<String> {
    line.split(' ')
        .map(|word| word.replace('␠', " ").replace('␉', "\t").replace('␊', "\n"))
        .collect()
}

impl Machine for Node {
    fn zfs(&self, line: &str) -> (Ended, String) {
        let output = InProcess::new(self).answer(Program::Zfs, &words(line));
        let said = String::from_utf8_lossy(&output.stderr);
        (ended(output.status, &said), String::from_utf8(output.stdout).unwrap())
    }

    fn send(&self, line: &str) -> (Ended, Vec<u8>) {
        match send(self, &words(line)) {
            Ok(out) => match out.then {
                Then::Ends(status, said) => (ended(status.into(), &said), out.bytes),
                Then::Hangs => unreachable!("nothing was told to hang"),
            },
            Err(failed) => (ended(failed.0.into(), &failed.1), Vec::new()),
        }
    }

    fn receive(&self, line: &str, stream: &[u8]) -> Ended {
        let run = || {
            let Some(mut receiver) = receive(self, &words(line))? else { return Ok(()) };
            receiver.push(stream)?;
            receiver.finish()
        };
        run().map_or_else(|failed| ended(failed.0.into(), &failed.1), |()| ended(0, ""))
    }

    fn write(&self, dataset: &str, path: &str, bytes: &[u8]) {
        self.write_file(dataset, path, bytes).unwrap();
    }
}

const SHOWN: &str = "get -r -H -p -o name,property,value,source type,origin,quota,refquota,a:b,a:local,readonly,recordsize,mounted";

/// Tells the story; returns how each step ended, or what it shows.
fn tell(source: &dyn Machine, target: &dyn Machine) -> Vec<String> {
    let mut streams: HashMap<&str, Vec<u8>> = HashMap::new();
    let bytes = |kib: usize| (0..kib * 1024).map(|at| (at % 251) as u8 | 1).collect::<Vec<u8>>();
    let mut told = Vec::new();
    for step in STORY {
        let (status, kind) = match *step {
            S(line) => source.zfs(line).0,
            T(line) => target.zfs(line).0,
            WriteS(dataset, path, kib) => {
                source.write(dataset, path, &bytes(kib));
                continue;
            }
            WriteT(dataset, path, kib) => {
                target.write(dataset, path, &bytes(kib));
                continue;
            }
            Send(name, line) => {
                let (ended, stream) = source.send(line);
                streams.insert(name, stream);
                ended
            }
            Receive(name, line, part) => {
                let mut stream = streams[name].clone();
                match part {
                    Whole => {}
                    Percent(percent) => stream.truncate(stream.len() * percent / 100),
                    Flip(percent) => {
                        let at = stream.len() * percent / 100;
                        stream[at] ^= 1;
                    }
                }
                target.receive(line, &stream)
            }
            Shows(top) => {
                let (ended, text) = target.zfs(&format!("{SHOWN} {top}"));
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                told.push(format!("{step:?}: {ended:?}\n{}", lines.join("\n")));
                continue;
            }
            Prints(line) => {
                let (ended, text) = target.zfs(line);
                told.push(format!("{step:?}: {ended:?}\n{text}"));
                continue;
            }
        };
        told.push(format!("{step:?}: {status} {kind}"));
    }
    told
}

/// The lines in which two answers differ, and the step.
fn difference(expected: &str, got: &str) -> String {
    let only = |of: &str, other: &str, whose: &str| {
        let lines = of.lines().filter(|line| !other.lines().any(|it| it == *line));
        lines.map(|line| format!("\n  {whose}: {line}")).collect::<String>()
    };
    let step = expected.lines().next().unwrap_or_default();
    format!("{step}{}{}", only(expected, got, "real"), only(got, expected, "stand-in"))
}

fn stand_in(dir: &TempDir, name: &str, seed: u64) -> Node {
    let options = CreateOptions { vms: 0, seed, ..CreateOptions::new(dir.path().join(name)) };
    let mut node = Node::create(&options).unwrap();
    node.set_info(|info| info.zfs = Zfs::Fuse).unwrap();
    node
}

#[test]
fn the_stand_in_behaves_as_real_zfs() {
    if let Some(why) = rig::why_not() {
        eprintln!("skipped: {why}");
        return;
    }
    let real = rig::start(2, rig::SMALL).unwrap();
    let dir = TempDir::new().unwrap();
    let simulated = [stand_in(&dir, "source", 1), stand_in(&dir, "target", 2)];
    let expected = tell(&real[0], &real[1]);
    let got = tell(&simulated[0], &simulated[1]);
    let differ: Vec<String> = expected
        .iter()
        .zip(&got)
        .filter(|(expected, got)| expected != got)
        .map(|(expected, got)| difference(expected, got))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    assert_eq!(expected.len(), got.len());
    real[1].destroy("zones/t").unwrap();
}
